#!/usr/bin/env python3
"""train.c in Python, with nothing but ctypes: python3 train.py ../mlp/model.onnx"""
import ctypes as c
import random
import sys


class Tensor(c.Structure):
    _fields_ = [("name", c.c_char_p), ("type", c.c_int), ("rank", c.c_int), ("dim", c.c_int64 * 8), ("data", c.c_void_p)]


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("least_bytes", c.c_int64), ("message", c.c_char * 4096)]


def check(ok):
    if not ok:
        sys.exit(error.message.decode())


F32, I64, ROWS, WIDTH = 1, 5, 32, 16
random.seed(1)
ckc, error = c.CDLL("libckc.so"), Error()
ckc.ckc_plan.restype = c.c_void_p
options = (c.c_char_p * 4)(b"bind=batch=32", b"budget=90%", b"lr=0.01")  # and NULL
session = c.c_void_p(ckc.ckc_plan(sys.argv[1].encode(), options, c.byref(error)))
check(session)
x, target, loss = (c.c_float * WIDTH * ROWS)(), (c.c_int64 * ROWS)(), c.c_double()
batch = (Tensor * 2)(Tensor(b"x", F32, 2, (ROWS, WIDTH), c.addressof(x)),
                     Tensor(b"target", I64, 1, (ROWS,), c.addressof(target)))
for step in range(1, 201):
    for i in range(ROWS):
        x[i][:] = [random.uniform(-1, 1) for _ in range(WIDTH)]
        target[i] = max(range(10), key=lambda k: x[i][k])
    check(ckc.ckc_train(session, c.c_int64(1), batch, 2, c.byref(loss), c.byref(error)) == 0)
    if step == 1 or step % 50 == 0:
        print(f"step {step}: loss {loss.value:.4f}")
check(ckc.ckc_save(session, b"trained.onnx", c.byref(error)) == 0)
ckc.ckc_free(session)
