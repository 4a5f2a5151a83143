//! Runs a folder of conformance cases on a device.
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(name) = args.get(3) {
        burn_rnn::force_strategy(name.parse().unwrap());
    }
    let (device, dtypes) = match args[2].as_str() {
        "flex" => (burn::tensor::Device::flex(), vec![burn::tensor::DType::F32, burn::tensor::DType::F64]),
        "wgpu16" => (
            burn::tensor::Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
            vec![burn::tensor::DType::F16],
        ),
        _ => (
            burn::tensor::Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
            vec![burn::tensor::DType::F32],
        ),
    };
    for dtype in dtypes {
        let report = rnn_conformance::run_folder(std::path::Path::new(&args[1]), &device, dtype).unwrap();
        println!("{report}");
    }
}
