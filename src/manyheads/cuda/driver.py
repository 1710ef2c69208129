"""The CUDA driver, called without torch, whose import takes seconds."""

import ctypes
import sys
import threading


def open_driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None


def count_gpus() -> int:
    """Return the number of CUDA devices that this process sees."""
    driver, count = open_driver(), ctypes.c_int()
    if driver is None or driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def start_context_creation() -> threading.Thread | None:
    """Start to create the CUDA context of the first GPU in a thread; return it, or None without a driver.

    The context is the one that torch uses too. Creating it takes seconds and does not need Python's lock.
    Failures are left to torch, which reports them. The process does not exit before the thread has ended.
    """
    driver = open_driver()
    if driver is None:
        return None
    thread = threading.Thread(target=create_context, args=(driver,), name="manyheads CUDA context")
    thread.start()
    return thread


def create_context(driver: ctypes.CDLL) -> None:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if not driver.cuInit(0) and not driver.cuDeviceGet(ctypes.byref(device), 0):
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
