//! Backends that record the operations for somebody else to run: Capture and Remote.

use burn::{
    backend::{Capture, DispatchDevice, Flex, ir::OperationIr},
    tensor::{DType, Device, Tensor, remote::RemoteHost},
};
use burn_remote::server::{BackendServer, WebSocketTransport};
use burn_rnn::{Activation, GruDescriptor, SingleGateRnnDescriptor, register_recurrent_ops};
use burn_router::CustomOpRegistry;

use crate::{
    devices,
    problem::{Loss, MaskAxes, Problem, assert_all_close, assert_close, values},
};

fn problems() -> [Problem; 3] {
    let gru = GruDescriptor { reset_after: true, clip: Some(0.4), ..Default::default() };
    let activation = Activation::HardSigmoid { alpha: 0.3, beta: 0.4 };
    let rnn = SingleGateRnnDescriptor { bidirectional: true, activation, ..Default::default() };
    [
        Problem::new(gru).with_mask(MaskAxes::PerStep).with_lengths([4, 0, 2]),
        Problem::new(GruDescriptor { bidirectional: true, flip_z: true, ..Default::default() })
            .without(["input_weight"]),
        Problem::new(rnn).with_mask(MaskAxes::Constant).with_lengths([1, 2, 3]),
    ]
}

#[test]
fn capture_records_the_operations() {
    for problem in problems() {
        let device = Device::capture();
        let data = problem.data();
        let graph = device.capture_scope(|scope| {
            let tensors = problem.tensors(&data, &device, DType::F32);
            let outputs = tensors.clone().forward(problem.cell, true).unwrap();
            assert_eq!(outputs.output.dims(), [problem.steps, problem.batch, problem.state()]);
            assert_eq!(outputs.final_state.dims(), [problem.batch, problem.state()]);
            let z_state = outputs.z_state.clone().unwrap();
            assert_eq!(z_state.dims(), [problem.steps, problem.batch, problem.gates()]);
            let id = |tensor: Tensor<3>| tensor.try_into_primitive::<Capture>().unwrap().id();
            scope.complete([], [id(outputs.output), id(z_state)])
        });
        let operations = graph.unwrap().graph.operations;
        let custom: Vec<_> = operations
            .iter()
            .filter_map(|operation| match operation {
                OperationIr::Custom(desc) => Some(desc),
                _ => None,
            })
            .collect();
        let [forward] = custom[..] else { panic!("one operation, not {custom:?}") };
        assert_eq!(forward.id, "rnn::recurrent_forward");
        let lengths = problem.lengths.iter().count();
        assert_eq!(forward.inputs.len(), data.len() - 2 + lengths, "all but the gradients");
        assert_eq!(forward.outputs.len(), 3);
        let shapes: Vec<_> = forward.outputs.iter().map(|output| output.shape.as_slice().to_vec()).collect();
        let (steps, batch) = (problem.steps, problem.batch);
        assert_eq!(
            shapes,
            [
                vec![steps, batch, problem.state()],
                vec![batch, problem.state()],
                vec![steps, batch, problem.gates()]
            ]
        );
    }
}

/// A server of this process that has the operations, and a device that is its client.
fn remote() -> (tokio::runtime::Runtime, Device) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = RemoteHost::websocket(&format!("ws://{}", listener.local_addr().unwrap()));
    let mut operations = CustomOpRegistry::<Flex>::new();
    register_recurrent_ops(&mut operations);
    let server = BackendServer::<Flex>::new([Default::default()]).with_custom_ops(operations);
    runtime.spawn(server.serve_async(WebSocketTransport::from_listener(listener)));
    let device = Device::remote_options(&host).init().unwrap();
    assert!(matches!(device.as_dispatch(), DispatchDevice::Remote(_)));
    (runtime, device)
}

#[test]
fn a_remote_device_computes_what_its_server_does() {
    let (runtime, remote) = remote();
    let local = devices::flex();
    for problem in problems() {
        let data = problem.data();
        let (want_outputs, want) = problem.by_gradients(&data, &local.device, local.dtype, Loss::Both);
        let (outputs, got) = problem.by_gradients(&data, &remote, local.dtype, Loss::Both);
        let output = values(outputs.output);
        assert_close("output", &output, &values(want_outputs.output), local.tolerance);
        let state = values(outputs.final_state);
        assert_close("final state", &state, &values(want_outputs.final_state), local.tolerance);
        assert_all_close("gradient operation", &got, &want, local.tolerance);

        for loss in [Loss::Output, Loss::State, Loss::Both] {
            let device = remote.clone().autodiff();
            let (_, got) = problem.by_autodiff(&data, &device, local.dtype, loss, |_| true);
            let (_, want) = problem.by_gradients(&data, &local.device, local.dtype, loss);
            assert_all_close(&format!("autodiff, {loss:?}"), &got, &want, local.tolerance);
        }
        let device = remote.clone().autodiff();
        let only = |name: &str| name == "recurrent_weight";
        let (_, got) = problem.by_autodiff(&data, &device, local.dtype, Loss::Both, only);
        assert_eq!(got.keys().collect::<Vec<_>>(), [&"recurrent_weight"]);
    }
    runtime.shutdown_background();
}
