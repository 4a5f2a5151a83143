"""Times GRU and RNN layers of PyTorch and ONNX Runtime: the peers that `bench --peer FILE` compares with.

    python3 peers.py --device cuda --out cudnn.json      PyTorch through cuDNN, TF32 off
    python3 peers.py --device mps --out mps.json         PyTorch on a Mac's GPU
    python3 peers.py --device cpu --set cpu --threads 2 --out cpu.json
    python3 peers.py --engine onnxruntime --set cpu --threads 2 --out ort.json

The file has the rows that `bench --json` writes. Times are the median of five averages over ten back-to-back
calls between two synchronisations, or more where calls are short, after a warm-up until they settle. Training is
forward and backward with the gradients of the input and of every weight, from an all-ones gradient of the output.
Needs PyTorch, or onnx and onnxruntime.
"""

import argparse
import json
import statistics
import time

SETS = {
    "grid": [
        (1, 1000, 256, 256),
        (16, 128, 64, 128),
        (64, 128, 128, 128),
        (64, 128, 256, 256),
        (64, 256, 512, 512),
        (32, 512, 1024, 1024),
        (128, 128, 1024, 1024),
        (256, 64, 256, 256),
        (16, 1024, 64, 64),
        (512, 128, 128, 128),
    ],
    "cpu": [
        (1, 100, 64, 64),
        (1, 1000, 256, 256),
        (16, 128, 64, 128),
        (64, 64, 128, 256),
        (32, 64, 512, 512),
        (256, 32, 128, 128),
    ],
    "step": [(1, 1, 256, 256)],
}


def timed(call, synchronize):
    """Milliseconds of a call."""

    def average(calls):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize()
        return (time.perf_counter() - start) * 1e3 / calls

    synchronize()
    start, calls, warm = time.perf_counter(), 1, []
    while True:
        warm.append(average(calls))
        last, elapsed = warm[-3:], time.perf_counter() - start
        settled = elapsed > 0.5 and max(last) <= 1.05 * min(last)
        if len(warm) >= 3 and (settled or elapsed > 20):
            break
        calls = min(calls * 2, max(10, int(50 / warm[-1])))
    calls = max(10, min(10000, int(50 / statistics.median(last)) + 1))
    return statistics.median(average(calls) for _ in range(5))


def time_torch(options):
    """Yields the options and times of each case."""
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    synchronize = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize, "cpu": lambda: None}[options.device]
    torch.manual_seed(0)
    for cell, dtype, (n, t, i, h) in cases(options):
        kind = torch.nn.GRU if cell == "gru" else torch.nn.RNN
        layer = kind(i, h, bidirectional=options.bidirectional)
        layer = layer.to(options.device, getattr(torch, dtype))
        source = torch.randn(t, n, i, device=options.device, dtype=getattr(torch, dtype), requires_grad=True)

        def forward():
            with torch.no_grad():
                layer(source)

        def train():
            output, _ = layer(source)
            output.backward(torch.ones_like(output))
            source.grad = None
            layer.zero_grad(set_to_none=True)

        yield cell, dtype, (n, t, i, h), timed(forward, synchronize), timed(train, synchronize)


def torch_name(options):
    import torch

    name = f"PyTorch {torch.__version__}"
    if options.device == "cuda":
        version = torch.backends.cudnn.version()
        return f"{name}, cuDNN {version}", torch.cuda.get_device_name(0)
    if options.device == "mps":
        return f"{name} on MPS", "mps"
    return name, f"cpu, {torch.get_num_threads()} threads"


def time_onnxruntime(options):
    """Yields the options and times of each case, forward only: there is no training to time."""
    import numpy
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    random = numpy.random.default_rng(0)
    directions = 1 + options.bidirectional
    for cell, dtype, (n, t, i, h) in cases(options):
        assert dtype == "float32", "ONNX Runtime is timed in float32"
        gates = 3 if cell == "gru" else 1

        def weight(name, *shape):
            values = random.uniform(-1, 1, (directions, *shape)).astype(numpy.float32) / numpy.sqrt(h)
            return numpy_helper.from_array(values.astype(numpy.float32), name)

        weights = [weight("W", gates * h, i), weight("R", gates * h, h), weight("B", 2 * gates * h)]
        attributes = {"hidden_size": h, "direction": "bidirectional" if options.bidirectional else "forward"}
        if cell == "gru":
            attributes["linear_before_reset"] = 1
        node = helper.make_node(cell.upper(), ["X", "W", "R", "B", "", "H"], ["Y", "Z"], **attributes)
        inputs = [
            helper.make_tensor_value_info("X", TensorProto.FLOAT, [t, n, i]),
            helper.make_tensor_value_info("H", TensorProto.FLOAT, [directions, n, h]),
        ]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "YZ"]
        graph = helper.make_graph([node], "layer", inputs, outputs, weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads or 0
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
        )
        feed = {
            "X": random.standard_normal((t, n, i)).astype(numpy.float32),
            "H": numpy.zeros((directions, n, h), numpy.float32),
        }
        yield cell, dtype, (n, t, i, h), timed(lambda: session.run(None, feed), lambda: None), None


def onnxruntime_name(options):
    import onnxruntime

    return f"ONNX Runtime {onnxruntime.__version__}", f"cpu, {options.threads or 'all'} threads"


def cases(options):
    shapes = [tuple(map(int, shape.split(","))) for shape in options.shape]
    if options.set or not shapes:
        shapes = SETS[options.set or "grid"] + shapes
    return [(cell, dtype, shape) for cell in options.cell for dtype in options.dtype for shape in shapes]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["torch", "onnxruntime"], default="torch")
    parser.add_argument("--device", choices=["cuda", "mps", "cpu"], default="cpu")
    parser.add_argument("--cell", nargs="+", choices=["gru", "rnn"], default=["gru", "rnn"])
    parser.add_argument("--dtype", nargs="+", choices=["float32", "float16", "bfloat16"], default=["float32"])
    parser.add_argument("--set", choices=SETS)
    parser.add_argument("--shape", action="append", default=[], metavar="N,T,I,H")
    parser.add_argument("--bidirectional", action="store_true")
    parser.add_argument("--threads", type=int, help="threads of the CPU [default: the engine's choice]")
    parser.add_argument("--out", metavar="FILE", help="write the rows as JSON")
    options = parser.parse_args()

    engine = {"torch": (time_torch, torch_name), "onnxruntime": (time_onnxruntime, onnxruntime_name)}
    times, name = engine[options.engine]
    rows = []
    for cell, dtype, (n, t, i, h), forward, train in times(options):
        row = {"cell": cell, "dtype": dtype, "bidirectional": options.bidirectional, "n": n, "t": t, "i": i, "h": h}
        row["forward_ms"] = round(forward, 4)
        if train is not None:
            row["train_ms"] = round(train, 4)
        rows.append(row)
        training = "" if train is None else f"  training {train:9.3f} ms"
        print(f"{cell} {dtype} N{n} T{t} I{i} H{h}  forward {forward:9.3f} ms{training}", flush=True)
    peer, device = name(options)
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"name": peer, "device": device, "rows": rows}, file, indent=1)


main()
