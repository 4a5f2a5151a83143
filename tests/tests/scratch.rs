#![allow(missing_docs)]
use burn::tensor::*;
#[test]
fn f64_on_wgpu() {
    let d = Device::wgpu(DeviceKind::DefaultDevice);
    println!("supports f64 {} f16 {} bf16 {}", d.supports_dtype(DType::F64), d.supports_dtype(DType::F16), d.supports_dtype(DType::BF16));
    let x = TensorData::new(vec![0.1f64, -0.7, 1.3, 0.33], [2, 2]);
    let run = |d: &Device, f: fn(Tensor<2>) -> Tensor<2>| { let t = Tensor::<2>::from_data(x.clone(), (d, DType::F64)); format!("{:?}", f(t).into_data().to_vec::<f64>()) };
    for (n, f) in [("tanh", (|t| t.tanh()) as fn(Tensor<2>) -> Tensor<2>), ("add", |t| t.clone() + t), ("mul", |t| t.clone() * t), ("adds", |t| t + 0.5), ("muls", |t| t * 0.3), ("matmul", |t| t.clone().matmul(t)), ("sum", |t| t.sum_dim(0)), ("exp", |t| t.exp()), ("clamp", |t| t.clamp(-0.5, 0.5)),
       ("cat", |t| Tensor::cat(vec![t.clone(), t], 0)), ("slice", |t| t.slice([0..1, 0..2])), ("ones", |t| Tensor::ones([2,2], (&t.device(), DType::F64)))] {
        println!("{n}: {} {}", run(&d, f), run(&Device::flex(), f));
    }
}
