//! Runs a folder of conformance cases on a device.
fn main() {
    let device = burn::tensor::Device::flex();
    let folder = std::env::args().nth(1).unwrap();
    for dtype in [burn::tensor::DType::F32, burn::tensor::DType::F64] {
        let report = rnn_conformance::run_folder(std::path::Path::new(&folder), &device, dtype).unwrap();
        println!("{report}");
    }
}
