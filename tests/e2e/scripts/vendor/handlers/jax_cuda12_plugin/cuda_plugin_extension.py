import ctypes

from ._library import library


def register_custom_call_target(c_api, fn_name, fn, xla_platform_name, api_version=0, traits=0):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    assert api_version == 1 and traits == 0, "a handler of the typed interface"
    taken = library.register_handler(
        ctypes.c_void_p(pointer(c_api, b"pjrt_c_api")),
        fn_name.encode(),
        ctypes.c_void_p(pointer(fn, None)),
        xla_platform_name.encode(),
    )
    if not taken:
        raise RuntimeError(f"the plugin refuses `{fn_name}`")
