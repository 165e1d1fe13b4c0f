"""Everything that a job can get wrong at the PJRT boundary, through pypjrt: JAX would not let it.

Prints one line per wrong claim: what it was, the kind of error, the message.
"""

import sys
from array import array

import pypjrt

ADD = """
module @add {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
F32, S32 = pypjrt.typing.F32.code, pypjrt.typing.S32.code
library, foreign_executable = sys.argv[1], sys.argv[2]


def wrong(name, call):
    try:
        result = call()
        # An error may come with the result instead.
        for buffer in result if isinstance(result, list) else [result]:
            if isinstance(buffer, pypjrt.Buffer):
                buffer.to_host()
    except pypjrt.errors.PjrtError as error:
        print(f"{name}|{type(error).__name__}|{' '.join(str(error).split())}", flush=True)
    else:
        print(f"{name}|accepted|", flush=True)


client = pypjrt.Client.create(library)
with client.device(0) as device:

    def floats(count, dtype=F32):
        return client.buffer_from_host(array("f", range(count)), dtype, [count], device)

    wrong("garbage", lambda: client.compile(b"\x00\x01 not a program \xff" * 10))
    wrong("empty", lambda: client.compile(b""))
    wrong("unfinished", lambda: client.compile(ADD[: len(ADD) // 2]))
    other_result = ADD.replace("-> tensor<4xf32>", "-> tensor<5xf32>")
    wrong("wrong types inside", lambda: client.compile(other_result))

    add = client.compile(ADD)
    a, b = floats(4), floats(4)
    wrong("too few arguments", lambda: add(a))
    wrong("too many arguments", lambda: add(a, b, a))
    wrong("another shape", lambda: add(a, floats(8)))
    wrong("another type of the same size", lambda: add(a, floats(4, S32)))

    gone = floats(4)
    # Not `gone.delete()`, after which pypjrt itself refuses to go on.
    plugin = pypjrt.Plugin(library)
    plugin.call("PJRT_Buffer_Delete", plugin.args("PJRT_Buffer_Delete_Args", buffer=gone.address))
    wrong("reading a deleted array", gone.to_host)
    wrong("running on a deleted array", lambda: add(a, gone))

    token = add.serialize()
    wrong("damaged executable", lambda: client.deserialize_executable(token[:-1] + b"\x00"))
    wrong("half an executable", lambda: client.deserialize_executable(token[: len(token) // 2]))
    wrong("empty executable", lambda: client.deserialize_executable(b""))
    with open(foreign_executable, "rb") as file:
        foreign = file.read()
    wrong("foreign executable", lambda: client.deserialize_executable(foreign))

    # After all that, the session still works, and so does a token that is right.
    (sums,) = client.deserialize_executable(token)(a, b)
    print("still works|", list(memoryview(sums.to_host()).cast("B").cast("f")))
