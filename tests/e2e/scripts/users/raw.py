"""A job of the scripted device: one that waits, or one that ends the device host. Then it asks why
its session is gone."""

import sys

import wire

path, role = sys.argv[1:]
with wire.Session(path, f"{role}.py").welcome() as session:
    print("ready", flush=True)
    if role == "culprit":
        refused = session.compile(1, "name: crashes; outputs: f32[4]; fail: crash")
        assert refused is None, refused
        session.launch(1, 1, 100)
    session.until_over()
    print(wire.fate(path, session.session))
