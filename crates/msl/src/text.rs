//! A kernel's text: what Burn's `metal` feature hands to Apple's compiler, and what wgpu hands it without.
//!
//! SPIR-V, which Burn's `vulkan` feature hands to a driver, needs the feature `spirv`.

use cubecl::{
    Compiler, CubeKernel, WgpuCompilationOptions, define_kernel, ir::settings::ExecutionMode,
    wgpu::WgslCompiler,
};
use cubecl_cpp::{MslCompiler, shared::CompilationOptions};
use naga::{
    back::msl::{BindTarget, EntryPointResources, Options, PipelineOptions, write_string},
    proc::{BoundsCheckPolicies, BoundsCheckPolicy},
    valid::{Capabilities, ValidationFlags, Validator},
};

/// What a kernel is compiled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// MSL by CubeCL, with Burn's `metal` feature.
    Msl,
    /// MSL by naga of CubeCL's WGSL, without it.
    Naga,
}

impl Form {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Msl, Self::Naga];

    /// Its name in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Msl => "msl",
            Self::Naga => "naga",
        }
    }
}

/// A kernel's text in each of its forms.
#[derive(Clone, Debug)]
pub struct Text {
    /// The kernel's name.
    pub name: String,
    /// Threads of a threadgroup.
    pub threads: [u32; 3],
    /// Buffers, without the info.
    pub buffers: usize,
    /// Bytes of threadgroup memory.
    pub threadgroup_memory: usize,
    /// MSL by CubeCL.
    pub msl: String,
    /// WGSL by CubeCL, if asked for; none with bfloat, which it has not.
    pub wgsl: Option<String>,
    /// MSL by naga, of the WGSL.
    pub naga: Option<String>,
    /// SPIR-V by CubeCL.
    #[cfg(feature = "spirv")]
    pub spirv: Vec<u32>,
}

impl Text {
    /// Compiles a kernel, as Burn does: to MSL, and to the other `forms`.
    ///
    /// # Errors
    ///
    /// What the compiler says.
    pub fn compile(kernel: &dyn CubeKernel, forms: &[Form]) -> Result<Self, String> {
        let define = || define_kernel(kernel).map_err(|error| error.to_string());
        let definition = define()?;
        let settings = &definition.settings;
        if settings.execution_mode != ExecutionMode::Unchecked {
            return Err("a kernel that CubeCL adds checks to".into());
        }
        let name = settings.kernel_name.clone();
        let threads = [settings.cube_dim.x, settings.cube_dim.y, settings.cube_dim.z];
        let msl = MslCompiler::default()
            .compile(definition, &CompilationOptions::default())
            .map_err(|error| format!("`{name}` does not compile to MSL: {error}"))?;
        let source = msl.to_string();
        let wgsl = match forms.contains(&Form::Naga) && !source.contains("bfloat") {
            false => None,
            true => {
                let shader = WgslCompiler
                    .compile(define()?, &WgpuCompilationOptions::default())
                    .map_err(|error| format!("`{name}` does not compile to WGSL: {error}"))?;
                Some(shader.to_string())
            }
        };
        let naga = wgsl.as_deref().map(|wgsl| through_naga(wgsl, msl.buffers.len(), false)).transpose()?;
        Ok(Self {
            threads,
            buffers: msl.buffers.len(),
            threadgroup_memory: msl.shared_memory_size,
            msl: source,
            wgsl,
            naga,
            #[cfg(feature = "spirv")]
            spirv: spirv(kernel).map_err(|error| format!("`{name}` does not compile to SPIR-V: {error}"))?,
            name,
        })
    }

    /// The text in a form, if it has it.
    pub fn form(&self, form: Form) -> Option<&str> {
        match form {
            Form::Msl => Some(&self.msl),
            Form::Naga => self.naga.as_deref(),
        }
    }
}

/// The SPIR-V for a driver with all that CubeCL's backend asks after.
#[cfg(feature = "spirv")]
fn spirv(kernel: &dyn CubeKernel) -> Result<Vec<u32>, String> {
    let definition = define_kernel(kernel).map_err(|error| error.to_string())?;
    let mut options =
        WgpuCompilationOptions { supports_u64: true, supports_vulkan_compiler: true, ..Default::default() };
    options.vulkan.max_spirv_version = (1, 6);
    options.vulkan.max_vector_size = 4;
    options.vulkan.push_constant_size = 256;
    // Without it CubeCL 0.11.3 declares workgroup memory as pointers to where it should be: it takes the type of the
    // variable for that of its content, and the other way round. No validator accepts that, whatever the kernel.
    options.vulkan.supports_explicit_smem = true;
    let kernel =
        cubecl_spirv::SpirvCompiler.compile(definition, &options).map_err(|error| error.to_string())?;
    Ok(kernel.assembled_module)
}

/// The MSL that wgpu makes of the WGSL of a kernel with `buffers` before its info. Bindings keep their numbers.
///
/// CubeCL hands kernels to wgpu as trusted modules: no checks of bounds or of divisors, no zeroed workgroup memory, and no
/// counters that end loops. With `checked` those are there, as in a module that wgpu does not trust.
///
/// # Errors
///
/// What naga says.
pub fn through_naga(wgsl: &str, buffers: usize, checked: bool) -> Result<String, String> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|error| error.emit_to_string(wgsl))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|error| error.emit_to_string(wgsl))?;
    let [entry] = &module.entry_points[..] else {
        return Err("a kernel has one entry point".into());
    };
    let resources = module
        .global_variables
        .iter()
        .filter_map(|(_, variable)| variable.binding)
        .map(|binding| {
            let slot = u8::try_from(binding.binding).expect("a kernel has few buffers");
            (binding, BindTarget { buffer: Some(slot), mutable: true, ..Default::default() })
        })
        .collect();
    let slots = EntryPointResources {
        resources,
        immediates_buffer: None,
        sizes_buffer: Some(u8::try_from(buffers + 1).expect("a kernel has few buffers")),
    };
    let policy = if checked { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
    let policies =
        BoundsCheckPolicies { index: policy, buffer: policy, image_load: policy, binding_array: policy };
    let options = Options {
        lang_version: (3, 2),
        per_entry_point_map: [(entry.name.clone(), slots)].into(),
        fake_missing_bindings: false,
        bounds_check_policies: policies,
        zero_initialize_workgroup_memory: checked,
        force_loop_bounding: checked,
        emit_int_div_checks: checked,
        ..Default::default()
    };
    let pipeline =
        PipelineOptions { entry_point: Some((entry.stage, entry.name.clone())), ..Default::default() };
    let (text, _) =
        write_string(&module, &info, &options, &pipeline).map_err(|error| format!("naga: {error}"))?;
    Ok(text)
}
