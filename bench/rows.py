"""The rows by name: what a worker can be told to prepare and run."""

from arrays import holder, replacer, transfers
from callbacks import callback_loop, paced_callbacks
from fleet import fleet, footprint, workload_loop
from loops import (
    asynchronous_execute,
    counted_loop,
    inference,
    load,
    read_each_step,
    training_loop,
    turns,
    unread_loop,
)

ROWS = {
    "step_100ms": lambda: training_loop("transformer_100ms", read_every=1),
    "step_10ms_mlp": lambda: training_loop("mlp_10ms", read_every=10),
    "step_10ms_transformer": lambda: training_loop("transformer_10ms", read_every=10),
    "step_1ms": lambda: training_loop("mlp_1ms", read_every=100),
    "step_100us": lambda: training_loop("mlp_100us", read_every=100),
    "unread_1ms": lambda: unread_loop("mlp_1ms", warm_steps=50),
    "unread_10ms": lambda: unread_loop("mlp_10ms", warm_steps=5),
    "read_100us": lambda: read_each_step("mlp_100us", warm_steps=200),
    "read_1ms": lambda: read_each_step("mlp_1ms", warm_steps=50),
    "execute": lambda: asynchronous_execute("transformer_3ms"),
    "transfer": lambda: transfers(64),
    "load_mlp": lambda: load("mlp_10ms"),
    "load_transformer": lambda: load("transformer_10ms"),
    "callback_launch": lambda: callback_loop(each_launch=1),
    "callback_loop": lambda: callback_loop(each_launch=100),
    "calls_each_launch": lambda: paced_callbacks(each_launch=1),
    "calls_in_loop": lambda: paced_callbacks(each_launch=100),
    "turns_1ms": lambda: turns("mlp_1ms"),
    "turns_10ms": lambda: turns("mlp_10ms"),
    "cnn_10ms": lambda: training_loop("cnn_10ms", read_every=10),
    "cnn_100ms": lambda: training_loop("cnn_100ms", read_every=5),
    "lstm_3ms": lambda: training_loop("lstm_3ms", read_every=10),
    "lstm_10ms": lambda: training_loop("lstm_10ms", read_every=10),
    "transformer_3ms": lambda: training_loop("transformer_3ms", read_every=10),
    "count_3ms": lambda: counted_loop("transformer_3ms", read_every=10),
    "infer": lambda: inference("mlp_1ms", gap_seconds=0.05),
    "fleet": fleet,
    "footprint": footprint,
    "workload": workload_loop,
    "hold_60": lambda: holder(60, arrays=40, waits=False),
    "hold_60_wait": lambda: holder(60, arrays=40, waits=True),
    "hold_240": lambda: holder(236, arrays=120, waits=False),
    "replace_240": lambda: replacer(236, arrays=120),
}
