// Times MPSGraph's own GRU and single-gate RNN: a peer that `bench --peer FILE` compares with. On a Mac:
//
//     swiftc -O mpsgraph.swift -o mpsgraph
//     ./mpsgraph --set grid --cell gru rnn --dtype float32 float16 --out mpsgraph.json
//
// The file has the rows that `bench --json` writes. The cells are those of bench: a GRU with the reset gate first and
// after the recurrent product, an RNN with tanh; both with an input weight and biases. Times are the median of five
// averages over at least ten back-to-back runs of a compiled graph, or as many as fill 50 ms, between two
// synchronisations, after a warm-up until they settle. Training is forward and the gradients of the source and of every
// weight, from an all-ones gradient of the output. Before anything is timed, small results are checked against a plain loop.
// Needs macOS 13 or later.

import Dispatch
import Foundation
import Metal
import MetalPerformanceShaders
import MetalPerformanceShadersGraph

struct Failure: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}

enum Cell: String {
    case gru, rnn

    var gates: Int { self == .gru ? 3 : 1 }
}

enum Precision: String {
    case float32, float16

    var type: MPSDataType { self == .float32 ? .float32 : .float16 }
    var bytes: Int { self == .float32 ? 4 : 2 }
}

struct Shape {
    let n, t, i, h: Int
}

let sets: [String: [Shape]] = [
    "grid": [
        Shape(n: 1, t: 1000, i: 256, h: 256),
        Shape(n: 16, t: 128, i: 64, h: 128),
        Shape(n: 64, t: 128, i: 128, h: 128),
        Shape(n: 64, t: 128, i: 256, h: 256),
        Shape(n: 64, t: 256, i: 512, h: 512),
        Shape(n: 32, t: 512, i: 1024, h: 1024),
        Shape(n: 128, t: 128, i: 1024, h: 1024),
        Shape(n: 256, t: 64, i: 256, h: 256),
        Shape(n: 16, t: 1024, i: 64, h: 64),
        Shape(n: 512, t: 128, i: 128, h: 128),
    ]
]

// Numbers that are the same in each run, uniform in ±1.
struct Random {
    var state: UInt64 = 7

    mutating func next() -> Float {
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Float(state >> 40) / Float(1 << 23) - 1
    }

    mutating func values(_ count: Int, bound: Float) -> [Float] {
        (0..<count).map { _ in next() * bound }
    }
}

// A tensor's values with its shape.
struct Values {
    let shape: [Int]
    let numbers: [Float]
}

// What goes into a cell, by the names of the operation's arguments.
struct Inputs {
    let source, recurrentWeight, inputWeight, bias, outputGradient: Values
    let secondaryBias: Values?

    init(cell: Cell, shape: Shape) {
        var random = Random()
        let (n, t, i, h, g) = (shape.n, shape.t, shape.i, shape.h, cell.gates)
        let bound = 1 / Float(h).squareRoot()
        source = Values(shape: [t, n, i], numbers: random.values(t * n * i, bound: Float(3).squareRoot()))
        recurrentWeight = Values(shape: [g * h, h], numbers: random.values(g * h * h, bound: bound))
        inputWeight = Values(shape: [g * h, i], numbers: random.values(g * h * i, bound: bound))
        bias = Values(shape: [g * h], numbers: random.values(g * h, bound: bound))
        secondaryBias = cell == .gru ? Values(shape: [h], numbers: random.values(h, bound: bound)) : nil
        outputGradient = Values(shape: [t, n, h], numbers: [Float](repeating: 1, count: t * n * h))
    }
}

// The GPU and its queue.
final class Gpu {
    let device: MTLDevice
    let queue: MTLCommandQueue

    init() throws {
        guard let device = MTLCreateSystemDefaultDevice(), let queue = device.makeCommandQueue() else {
            throw Failure("there is no Metal device")
        }
        self.device = device
        self.queue = queue
    }

    func data(_ values: Values, _ precision: Precision) throws -> MPSGraphTensorData {
        let length = max(values.numbers.count, 1) * precision.bytes
        guard let buffer = device.makeBuffer(length: length, options: .storageModeShared) else {
            throw Failure("a buffer of \(length) bytes cannot be made")
        }
        switch precision {
        case .float32:
            values.numbers.withUnsafeBytes { bytes in
                if let start = bytes.baseAddress { buffer.contents().copyMemory(from: start, byteCount: bytes.count) }
            }
        case .float16:
            let halves = buffer.contents().bindMemory(to: UInt16.self, capacity: values.numbers.count)
            for (index, number) in values.numbers.enumerated() { halves[index] = halfBits(number) }
        }
        return MPSGraphTensorData(buffer, shape: values.shape.map { NSNumber(value: $0) }, dataType: precision.type)
    }
}

// The bits of the nearest 16-bit float: Float16 is not there on Macs with an Intel processor.
func halfBits(_ value: Float) -> UInt16 {
    let bits = value.bitPattern
    let sign = UInt16(truncatingIfNeeded: bits >> 16) & 0x8000
    let magnitude = abs(value)
    if magnitude >= 65520 { return sign | 0x7c00 }
    if magnitude < 6.103515625e-05 {
        // A multiple of the smallest step.
        return sign | UInt16((magnitude * 16_777_216).rounded(.toNearestOrEven))
    }
    let scaled = (bits & 0x7fff_ffff) - 0x3800_0000
    let rounded = (scaled + 0x0fff + ((scaled >> 13) & 1)) >> 13
    return sign | UInt16(truncatingIfNeeded: rounded)
}

// A cell as a compiled graph with its inputs.
final class Compiled {
    private let gpu: Gpu
    private let executable: MPSGraphExecutable
    private let inputs: [MPSGraphTensorData]
    private let group = DispatchGroup()
    private var failure: Error?

    init(_ gpu: Gpu, cell: Cell, inputs values: Inputs, precision: Precision, training: Bool) throws {
        self.gpu = gpu
        let graph = MPSGraph()
        var feeds: [MPSGraphTensor: MPSGraphShapedType] = [:]
        var data: [MPSGraphTensor: MPSGraphTensorData] = [:]
        func placeholder(_ values: Values, _ name: String) throws -> MPSGraphTensor {
            let shape = values.shape.map { NSNumber(value: $0) }
            let tensor = graph.placeholder(shape: shape, dataType: precision.type, name: name)
            feeds[tensor] = MPSGraphShapedType(shape: shape, dataType: precision.type)
            data[tensor] = try gpu.data(values, precision)
            return tensor
        }
        let source = try placeholder(values.source, "source")
        let recurrentWeight = try placeholder(values.recurrentWeight, "recurrentWeight")
        let inputWeight = try placeholder(values.inputWeight, "inputWeight")
        let bias = try placeholder(values.bias, "bias")

        var targets: [MPSGraphTensor]
        switch cell {
        case .gru:
            let descriptor = MPSGraphGRUDescriptor()
            descriptor.resetGateFirst = true
            descriptor.resetAfter = true
            descriptor.training = training
            var secondaryBias: MPSGraphTensor?
            if let values = values.secondaryBias { secondaryBias = try placeholder(values, "secondaryBias") }
            let results = graph.GRU(
                source, recurrentWeight: recurrentWeight, inputWeight: inputWeight, bias: bias, initState: nil,
                mask: nil, secondaryBias: secondaryBias, descriptor: descriptor, name: nil)
            targets = [results[0]]
            if training {
                let outputGradient = try placeholder(values.outputGradient, "outputGradient")
                targets += graph.GRUGradients(
                    source, recurrentWeight: recurrentWeight, sourceGradient: outputGradient, zState: results[1],
                    outputFwd: results[0], stateGradient: nil, inputWeight: inputWeight, bias: bias, initState: nil,
                    mask: nil, secondaryBias: secondaryBias, descriptor: descriptor, name: nil)
            }
        case .rnn:
            let descriptor = MPSGraphSingleGateRNNDescriptor()
            descriptor.activation = .tanh
            descriptor.training = training
            let results = graph.singleGateRNN(
                source, recurrentWeight: recurrentWeight, inputWeight: inputWeight, bias: bias, initState: nil,
                mask: nil, descriptor: descriptor, name: nil)
            targets = [results[0]]
            if training {
                let outputGradient = try placeholder(values.outputGradient, "outputGradient")
                targets += graph.singleGateRNNGradients(
                    source, recurrentWeight: recurrentWeight, sourceGradient: outputGradient, zState: results[1],
                    stateGradient: nil, inputWeight: inputWeight, bias: bias, initState: nil, mask: nil,
                    descriptor: descriptor, name: nil)
            }
        }

        executable = graph.compile(
            with: MPSGraphDevice(mtlDevice: gpu.device), feeds: feeds, targetTensors: targets, targetOperations: nil,
            compilationDescriptor: nil)
        // The executable has its own order.
        inputs = try (executable.feedTensors ?? []).map { tensor in
            guard let given = data[tensor] else { throw Failure("the graph asks for an input that it was not given") }
            return given
        }
    }

    // Queues one run.
    func start() {
        let descriptor = MPSGraphExecutableExecutionDescriptor()
        group.enter()
        descriptor.completionHandler = { [self] _, error in
            if let error { failure = error }
            group.leave()
        }
        _ = executable.runAsync(with: gpu.queue, inputs: inputs, results: nil, executionDescriptor: descriptor)
    }

    // Waits for all that was queued.
    func finish() throws {
        group.wait()
        if let failure { throw failure }
    }

    // The first result, in 32-bit floats.
    func firstResult(count: Int) -> [Float] {
        let results = executable.run(with: gpu.queue, inputs: inputs, results: nil, executionDescriptor: nil)
        var numbers = [Float](repeating: .nan, count: count)
        results[0].mpsndarray().readBytes(&numbers, strideBytes: nil)
        return numbers
    }
}

// How long a run takes.
func milliseconds(of compiled: Compiled) throws -> Double {
    func average(_ runs: Int) throws -> Double {
        let start = DispatchTime.now().uptimeNanoseconds
        for _ in 0..<runs { autoreleasepool { compiled.start() } }
        try compiled.finish()
        return Double(DispatchTime.now().uptimeNanoseconds - start) / 1e6 / Double(runs)
    }
    func runs(for milliseconds: Double) -> Int { min(max(Int((50 / milliseconds).rounded(.up)), 10), 10_000) }

    let start = DispatchTime.now().uptimeNanoseconds
    var warmUp: [Double] = []
    var calls = 1
    while true {
        warmUp.append(try average(calls))
        let last = warmUp.suffix(3)
        let elapsed = Double(DispatchTime.now().uptimeNanoseconds - start) / 1e9
        let settled = elapsed > 0.5 && last.max()! <= 1.05 * last.min()!
        if warmUp.count >= 3 && (settled || elapsed > 20) { break }
        calls = min(calls * 2, runs(for: warmUp.last!))
    }
    calls = runs(for: warmUp.suffix(3).sorted()[1])
    return try (0..<5).map { _ in try average(calls) }.sorted()[2]
}

// The output of a cell, by a plain loop.
func reference(_ cell: Cell, _ shape: Shape, _ inputs: Inputs) -> [Float] {
    let (n, t, i, h) = (shape.n, shape.t, shape.i, shape.h)
    func sigmoid(_ x: Double) -> Double { 1 / (1 + exp(-x)) }
    var state = [Double](repeating: 0, count: n * h)
    var output: [Float] = []
    for step in 0..<t {
        let before = state
        for row in 0..<n {
            func projected(_ unit: Int) -> Double {
                var sum = Double(inputs.bias.numbers[unit])
                for k in 0..<i {
                    let x = Double(inputs.source.numbers[(step * n + row) * i + k])
                    let weight = Double(inputs.inputWeight.numbers[unit * i + k])
                    sum += x * weight
                }
                return sum
            }
            func recurrent(_ unit: Int) -> Double {
                var sum = 0.0
                for k in 0..<h {
                    let weight = Double(inputs.recurrentWeight.numbers[unit * h + k])
                    sum += before[row * h + k] * weight
                }
                return sum
            }
            for unit in 0..<h {
                switch cell {
                case .rnn:
                    state[row * h + unit] = tanh(projected(unit) + recurrent(unit))
                case .gru:
                    let r = sigmoid(projected(unit) + recurrent(unit))
                    let z = sigmoid(projected(h + unit) + recurrent(h + unit))
                    let inner = recurrent(2 * h + unit) + Double(inputs.secondaryBias!.numbers[unit])
                    let o = tanh(projected(2 * h + unit) + inner * r)
                    state[row * h + unit] = z * before[row * h + unit] + (1 - z) * o
                }
            }
        }
        output += state.map { Float($0) }
    }
    return output
}

// Fails if the operation is not the one that bench times.
func check(_ gpu: Gpu, _ cell: Cell) throws {
    let shape = Shape(n: 2, t: 5, i: 3, h: 4)
    let inputs = Inputs(cell: cell, shape: shape)
    let compiled = try Compiled(gpu, cell: cell, inputs: inputs, precision: .float32, training: false)
    let expected = reference(cell, shape, inputs)
    let error = zip(compiled.firstResult(count: expected.count), expected).map { abs($0 - $1) }.max() ?? 0
    // Not a number is not below.
    guard error < 1e-3 else { throw Failure("MPSGraph's \(cell.rawValue) is off by \(error) from a plain loop") }
}

struct Options {
    var cells: [Cell] = [.gru, .rnn]
    var precisions: [Precision] = [.float32]
    var shapes: [Shape] = []
    var out: String?

    init(_ arguments: [String]) throws {
        var rest = arguments[...]
        func values(_ option: String) throws -> [String] {
            let values = rest.prefix { !$0.hasPrefix("--") }
            if values.isEmpty { throw Failure("\(option) needs a value") }
            rest = rest.dropFirst(values.count)
            return Array(values)
        }
        while let option = rest.popFirst() {
            switch option {
            case "--cell":
                cells = try values(option).map { name in
                    guard let cell = Cell(rawValue: name) else { throw Failure("there is no cell `\(name)`") }
                    return cell
                }
            case "--dtype":
                precisions = try values(option).map { name in
                    guard let precision = Precision(rawValue: name) else {
                        throw Failure("the element type is float32 or float16, not `\(name)`")
                    }
                    return precision
                }
            case "--set":
                for name in try values(option) {
                    guard let set = sets[name] else { throw Failure("there is no set `\(name)`") }
                    shapes += set
                }
            case "--shape":
                for text in try values(option) {
                    let sizes = text.split(separator: ",").compactMap { Int($0) }.filter { $0 > 0 }
                    guard sizes.count == 4 else { throw Failure("a shape is N,T,I,H, not `\(text)`") }
                    shapes.append(Shape(n: sizes[0], t: sizes[1], i: sizes[2], h: sizes[3]))
                }
            case "--out":
                out = try values(option)[0]
            default:
                throw Failure("there is no option `\(option)`; there is --cell, --dtype, --set, --shape and --out")
            }
        }
        if shapes.isEmpty { shapes = sets["grid"]! }
    }
}

func run() throws {
    let options = try Options(Array(CommandLine.arguments.dropFirst()))
    let gpu = try Gpu()
    for cell in options.cells { try check(gpu, cell) }
    var rows: [[String: Any]] = []
    for cell in options.cells {
        for precision in options.precisions {
            for shape in options.shapes {
                let inputs = Inputs(cell: cell, shape: shape)
                let forward = try milliseconds(
                    of: Compiled(gpu, cell: cell, inputs: inputs, precision: precision, training: false))
                let train = try milliseconds(
                    of: Compiled(gpu, cell: cell, inputs: inputs, precision: precision, training: true))
                rows.append([
                    "cell": cell.rawValue, "dtype": precision.rawValue, "bidirectional": false,
                    "n": shape.n, "t": shape.t, "i": shape.i, "h": shape.h,
                    "forward_ms": forward, "train_ms": train,
                ])
                let sizes = "N\(shape.n) T\(shape.t) I\(shape.i) H\(shape.h)"
                let times = String(format: "forward %9.3f ms  training %9.3f ms", forward, train)
                print("\(cell.rawValue) \(precision.rawValue) \(sizes)  \(times)")
                fflush(stdout)
            }
        }
    }
    if let out = options.out {
        let version = ProcessInfo.processInfo.operatingSystemVersionString
        let report: [String: Any] = ["name": "MPSGraph, macOS \(version)", "device": gpu.device.name, "rows": rows]
        try JSONSerialization.data(withJSONObject: report, options: [.prettyPrinted, .sortedKeys])
            .write(to: URL(fileURLWithPath: out))
    }
}

do {
    try run()
} catch {
    FileHandle.standardError.write(Data("mpsgraph: \(error)\n".utf8))
    exit(1)
}
