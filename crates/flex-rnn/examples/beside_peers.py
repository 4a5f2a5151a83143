"""Times flex-rnn beside ONNX Runtime and PyTorch in one process, call by call in turn, on two threads
unless --threads says otherwise.

    cargo build --release -p flex-rnn --example c_interface
    pip install torch onnx onnxruntime
    RAYON_NUM_THREADS=2 python crates/flex-rnn/examples/beside_peers.py target/release/examples/libc_interface.so

On a machine that others use as well, --threads 1 --cpu-time (with RAYON_NUM_THREADS=1) times the processor's
work instead of the clock's.

Options: --cell GRU or RNN, --case with its number, --seconds for each case, --no-peers, --check compares the
results with PyTorch's instead of timing.
"""
import argparse
import ctypes
import os
import statistics
import time

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("library")
parser.add_argument("--cell", choices=["GRU", "RNN"])
parser.add_argument("--case", type=int)
parser.add_argument("--seconds", type=float, default=8)
parser.add_argument("--no-peers", action="store_true")
parser.add_argument("--no-train", action="store_true")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--cpu-time", action="store_true")
parser.add_argument("--check", action="store_true")
options = parser.parse_args()
clock = time.process_time if options.cpu_time else time.perf_counter

CASES = [(1, 100, 64, 64), (1, 1000, 256, 256), (16, 128, 64, 128), (64, 64, 128, 256), (32, 64, 512, 512),
         (256, 32, 128, 128), (1, 1, 256, 256)]
library = ctypes.CDLL(os.path.abspath(options.library))
FLOATS = ctypes.POINTER(ctypes.c_float)


def pointer(array):
    return array.ctypes.data_as(FLOATS)


class Ours:
    def __init__(self, cell, n, t, i, h, x, weights):
        self.sizes = [ctypes.c_bool(cell == "GRU")] + [ctypes.c_size_t(size) for size in (t, n, i, h)]
        self.x, self.weights = x, np.concatenate([w.ravel() for w in weights]).astype(np.float32)
        self.shape = (t, n, h)

    def forward(self, out=None):
        library.flex_rnn_forward(*self.sizes, pointer(self.x), pointer(self.weights),
                                 None if out is None else pointer(out))

    def train(self, dx=None, dw=None):
        library.flex_rnn_train(*self.sizes, pointer(self.x), pointer(self.weights),
                               None if dx is None else pointer(dx), None if dw is None else pointer(dw))


def ort_session(cell, n, t, i, h, weights):
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper
    g = 3 if cell == "GRU" else 1
    w, r = weights[0], weights[1]
    order = [1, 0, 2] if cell == "GRU" else [0]
    rows = lambda a: np.concatenate([a.reshape(g, h, -1)[k] for k in order])[None]
    b = np.zeros((1, 2 * g * h), np.float32)
    initial = [numpy_helper.from_array(a, k) for a, k in ((rows(w), "W"), (rows(r), "R"), (b, "B"))]
    attributes = dict(hidden_size=h, **({"linear_before_reset": 1} if cell == "GRU" else {}))
    node = helper.make_node(cell, ["X", "W", "R", "B"], ["Y", "Yh"], **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [value("X", TensorProto.FLOAT, [t, n, i])],
                              [value("Y", TensorProto.FLOAT, None), value("Yh", TensorProto.FLOAT, None)], initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    o = ort.SessionOptions()
    o.intra_op_num_threads = options.threads
    return ort.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])


def run_case(cell, n, t, i, h):
    g = 3 if cell == "GRU" else 1
    rng = np.random.default_rng(0)
    x = rng.standard_normal((t, n, i)).astype(np.float32)
    k = h ** -0.5
    w = rng.uniform(-k, k, (g * h, i)).astype(np.float32)
    r = rng.uniform(-k, k, (g * h, h)).astype(np.float32)
    b = rng.uniform(-k, k, g * h).astype(np.float32)
    b2 = rng.uniform(-k, k, h).astype(np.float32)
    weights = [w, r, b] + ([b2] if cell == "GRU" else [])
    ours = Ours(cell, n, t, i, h, x, weights)
    tasks = {"flex-rnn forward": ours.forward}
    if not options.no_train:
        tasks["flex-rnn train"] = ours.train
    if not options.no_peers or options.check:
        import torch
        torch.set_num_threads(options.threads)
        module = getattr(torch.nn, cell)(i, h)
        with torch.no_grad():
            module.weight_ih_l0.copy_(torch.from_numpy(w))
            module.weight_hh_l0.copy_(torch.from_numpy(r))
            module.bias_ih_l0.copy_(torch.from_numpy(b))
            module.bias_hh_l0.zero_()
            if cell == "GRU":
                module.bias_hh_l0[2 * h:] = torch.from_numpy(b2)
        source = torch.from_numpy(x).requires_grad_(True)

        def infer():
            with torch.no_grad():
                return module(source)[0]

        def train():
            module(source)[0].sum().backward()
            result = source.grad, [p.grad for p in module.parameters()]
            source.grad = None
            module.zero_grad()
            return result

        if options.check:
            out = np.empty((t, n, h), np.float32)
            ours.forward(out)
            expected = infer().numpy()
            worst = [abs(out - expected).max()]
            dx, (dw, dr, db, db2) = train()
            got_dx, got_dw = np.empty_like(x), np.empty_like(ours.weights)
            ours.train(got_dx, got_dw)
            expected = np.concatenate([a.numpy().ravel() for a in [dw, dr, db] + ([db2[2 * h:]] if g == 3 else [])])
            worst += [abs(got_dx - dx.numpy()).max(), abs(got_dw - expected).max() / abs(expected).max()]
            print(f"{cell} N{n} T{t} I{i} H{h}: output {worst[0]:.1e}, source gradient {worst[1]:.1e}, "
                  f"weight gradients {worst[2]:.1e}", flush=True)
            return
        session = ort_session(cell, n, t, i, h, weights)
        tasks["ONNX Runtime forward"] = lambda: session.run(None, {"X": x})
        tasks["PyTorch forward"] = infer
        if not options.no_train:
            tasks["PyTorch train"] = train
    times = {name: [] for name in tasks}
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end or len(times["flex-rnn forward"]) < 5:
        for name, task in tasks.items():
            # A second call in a row finds the caches as it left them; short calls are repeated.
            task()
            start = clock()
            calls = 0
            while calls == 0 or clock() - start < 1e-3:
                task()
                calls += 1
            times[name].append((clock() - start) * 1e3 / calls)
    line = [f"{cell} N{n} T{t} I{i} H{h}:"]
    for name, values in times.items():
        line.append(f"  {name:22} median {statistics.median(values):9.3f}  least {min(values):9.3f} ms  of {len(values)}")
    print("\n".join(line), flush=True)


for cell in [options.cell] if options.cell else ["GRU", "RNN"]:
    for case in CASES if options.case is None else [CASES[options.case]]:
        run_case(cell, *case)
