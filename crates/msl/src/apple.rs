//! What a Mac's GPU is to CubeCL: the properties that kernels are planned and compiled by.

use cubecl::{
    features::{AtomicUsage, Plane, TypeUsage},
    ir::{
        AddressType, DeviceIdentity, DeviceProperties, ElemType, FloatKind, HardwareProperties, IntKind,
        MemoryDeviceProperties, Type, UIntKind,
    },
};
use cubecl_common::profile::TimingMethod;
use cubecl_cpp::{
    metal::{arch::MetalArchitecture, supported_cmma_combinations_metal},
    shared::register_wmma_features,
};

/// Bytes of threadgroup memory that every GPU of Apple's has for a kernel.
pub const THREADGROUP_MEMORY: usize = 32 * 1024;
/// Threads that a threadgroup may have.
pub const THREADS: u32 = 1024;
/// Buffers that a kernel may have, its `info` among them.
pub const BUFFERS: usize = 31;
/// Threads that run in lockstep.
pub const SIMD_WIDTH: u32 = 32;

/// The properties that Burn's `metal` feature registers for an Apple GPU of the Metal 3 family: those of
/// wgpu's Metal backend, and what CubeCL adds to them for kernels in MSL.
pub fn properties() -> DeviceProperties {
    let hardware = HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: SIMD_WIDTH,
        plane_size_max: SIMD_WIDTH,
        // One is left for the info.
        max_bindings: BUFFERS as u32 - 1,
        max_shared_memory_size: THREADGROUP_MEMORY,
        max_cube_count: (65_535, 65_535, 65_535),
        max_units_per_cube: THREADS,
        max_cube_dim: (THREADS, THREADS, THREADS),
        num_streaming_multiprocessors: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        num_cpu_cores: None,
        last_level_cache_size: None,
        max_vector_size: 4,
        cube_mma_reserved_shared_memory: 0,
    };
    let identity = DeviceIdentity {
        name: "Apple GPU, written down".into(),
        fingerprint: "msl_written_down".into(),
        physical: None,
    };
    let memory = MemoryDeviceProperties::new(1 << 32, 256);
    let mut properties =
        DeviceProperties::new(Default::default(), memory, hardware, TimingMethod::System, identity);
    properties.register_address_type(AddressType::U32);
    properties.register_address_type(AddressType::U64);
    for elem in [
        ElemType::Index,
        ElemType::UInt(UIntKind::U8),
        ElemType::UInt(UIntKind::U16),
        ElemType::UInt(UIntKind::U32),
        ElemType::UInt(UIntKind::U64),
        ElemType::Int(IntKind::I8),
        ElemType::Int(IntKind::I16),
        ElemType::Int(IntKind::I32),
        ElemType::Int(IntKind::I64),
        ElemType::Float(FloatKind::F16),
        ElemType::Float(FloatKind::BF16),
        ElemType::Float(FloatKind::F32),
        ElemType::Bool,
    ] {
        properties.register_type_usage(elem, TypeUsage::all());
    }
    for elem in [ElemType::Int(IntKind::I32), ElemType::UInt(UIntKind::U32)] {
        properties.register_atomic_type_usage(Type::atomic(elem), AtomicUsage::all());
    }
    properties.register_atomic_type_usage(
        Type::atomic(ElemType::Float(FloatKind::F32)),
        AtomicUsage::Add | AtomicUsage::LoadStore,
    );
    register_wmma_features(supported_cmma_combinations_metal(&MetalArchitecture::Metal3), &mut properties);
    properties.features.alignment = true;
    properties.features.device_memory_scope = true;
    for feature in [Plane::Ops, Plane::Sync, Plane::NonUniformControlFlow] {
        properties.features.plane.insert(feature);
    }
    properties
}
