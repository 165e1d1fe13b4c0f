from ._library import handler


def registrations():
    return {"cusolver_potrf_ffi": handler("potrf")}
