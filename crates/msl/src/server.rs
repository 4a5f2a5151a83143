//! A device that compiles kernels to MSL and hands them to an engine.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
};

use crate::{
    apple,
    text::{Form, Text},
};
use cubecl::{
    CubeCount, CubeKernel, MemoryAllocationMode, MemoryConfiguration,
    client::Client,
    dry_run::LaunchMode,
    future::DynFut,
    ir::{DeviceProperties, TargetProperties},
    server::{
        BufferBinding, CopyDescriptor, IoError, KernelArguments, KernelResource, ProfileError,
        ProfilingToken, Server, ServerCommunication, ServerError, ServerStorage, ServerUtilities,
    },
};
use cubecl_common::{
    bytes::Bytes,
    device::{DeviceId, DeviceService, ServerUtilitiesHandle, ServiceId},
    profile::ProfileDuration,
};
use cubecl_environment::{backtrace::BackTrace, stream::StreamId};
use cubecl_server::{
    allocator::ContiguousMemoryLayoutPolicy,
    id::KernelId,
    logging::ServerLogger,
    memory_management::{
        Cleanup, ErrorGraph, ManagedMemoryHandle, MemoryManagement, MemoryManagementOptions, PageUpdate,
        StreamMemoryReport,
    },
    storage::{BytesResource, BytesStorage, ComputeStorage, ManagedResource},
};

/// A buffer of a launch.
pub struct Buffer<'a> {
    /// Its bytes, no more and no fewer than the kernel may touch.
    pub bytes: &'a mut [u8],
}

/// A launch as an engine gets it.
pub struct Launch<'a> {
    /// The kernel.
    pub text: &'a Text,
    /// Its buffers, by their number.
    pub buffers: Vec<Buffer<'a>>,
    /// Sizes and scalars, the bytes of the `info` argument.
    pub info: Vec<u8>,
    /// Threadgroups.
    pub count: [u32; 3],
}

/// Runs launches.
pub trait Engine: Send {
    /// Runs one launch to its end, and says what went wrong if it failed.
    fn launch(&mut self, launch: Launch<'_>) -> Result<(), String>;
}

/// What a device is to do, and what it did.
#[derive(Default)]
struct Record {
    forms: Vec<Form>,
    engine: Option<Box<dyn Engine>>,
    kernels: Vec<(KernelId, Arc<Text>)>,
    failure: Option<String>,
}

/// A device with the record of its launches.
pub struct Device {
    /// Reaches the device.
    pub client: Client,
    cores: Option<u32>,
    record: Arc<Mutex<Record>>,
}

/// A device that is not in use. Without a use it keeps its thread, which asks for work several thousand times a second.
struct Idle {
    client: Client,
    cores: Option<u32>,
    record: Arc<Mutex<Record>>,
}

static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

impl Device {
    /// A device that compiles to `forms` and whose launches `engine` runs; without one, kernels are compiled only.
    pub fn new(forms: &[Form], engine: Option<Box<dyn Engine>>) -> Self {
        Self::with_cores(None, forms, engine)
    }

    /// A device that tells how many cores it has, which wgpu does not know of Apple's.
    pub fn with_cores(cores: Option<u32>, forms: &[Form], engine: Option<Box<dyn Engine>>) -> Self {
        let idle = {
            let mut idle = lock(&IDLE);
            let found = idle.iter().position(|idle| idle.cores == cores);
            found.map(|found| idle.swap_remove(found))
        };
        let Idle { client, record, .. } = idle.unwrap_or_else(|| {
            static DEVICES: AtomicU16 = AtomicU16::new(0);
            let id = DeviceId::new(0, DEVICES.fetch_add(1, Ordering::Relaxed));
            let mut properties = apple::properties();
            properties.hardware.num_streaming_multiprocessors = cores;
            let record = Arc::default();
            let server = CpuServer::new(id, properties, Arc::clone(&record));
            Idle { client: Client::init(id, server), cores, record }
        });
        *lock(&record) = Record { forms: forms.to_vec(), engine, ..Record::default() };
        Self { client, cores, record }
    }

    /// The kernels that were launched so far, each once, in the order of their first launch.
    pub fn kernels(&self) -> Vec<Arc<Text>> {
        self.wait();
        lock(&self.record).kernels.iter().map(|(_, text)| text.clone()).collect()
    }

    /// What went wrong first, if anything did.
    pub fn failure(&self) -> Option<String> {
        self.wait();
        lock(&self.record).failure.clone()
    }

    /// Waits until all launches are done; what failed is in the record.
    fn wait(&self) {
        let _ = cubecl::future::block_on(self.client.sync());
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.wait();
        *lock(&self.record) = Record::default();
        lock(&IDLE).push(Idle {
            client: self.client.clone(),
            cores: self.cores,
            record: self.record.clone(),
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device's side of a client: memory of this process, and an engine.
struct CpuServer {
    memory: MemoryManagement<BytesStorage>,
    failures: ErrorGraph,
    utilities: Arc<ServerUtilities>,
    record: Arc<Mutex<Record>>,
}

impl fmt::Debug for CpuServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuServer").finish_non_exhaustive()
    }
}

impl CpuServer {
    fn new(id: DeviceId, properties: DeviceProperties, record: Arc<Mutex<Record>>) -> Self {
        let logger = Arc::new(ServerLogger::default());
        let memory = MemoryManagement::from_configuration(
            BytesStorage::default(),
            &properties.memory,
            MemoryConfiguration::ExclusivePages,
            logger.clone(),
            MemoryManagementOptions::new("msl"),
        );
        let (utilities, _) = ServerUtilities::init(
            ServiceId::of::<Self>(id),
            // As Burn's runtime is called where it compiles to MSL.
            "wgpu<msl>",
            properties,
            TargetProperties { mma: Default::default() },
            logger,
            ContiguousMemoryLayoutPolicy::new(256),
        );
        let utilities = Arc::new(utilities);
        Self { memory, failures: ErrorGraph::default(), utilities, record }
    }

    fn resource(&mut self, binding: BufferBinding) -> Result<BytesResource, IoError> {
        self.memory.get_resource(binding.memory, binding.offset_start, binding.offset_end)
    }

    /// The kernel's text, compiled once.
    fn text(&mut self, kernel: &dyn CubeKernel) -> Result<Arc<Text>, String> {
        let id = kernel.id();
        let mut record = lock(&self.record);
        if let Some((_, text)) = record.kernels.iter().find(|(known, _)| *known == id) {
            return Ok(text.clone());
        }
        let text = Arc::new(Text::compile(kernel, &record.forms)?);
        record.kernels.push((id, text.clone()));
        Ok(text)
    }

    fn run(
        &mut self,
        kernel: &dyn CubeKernel,
        count: CubeCount,
        arguments: KernelArguments,
        mode: LaunchMode,
    ) -> Result<(), String> {
        let text = self.text(kernel)?;
        let record = self.record.clone();
        let mut record = lock(&record);
        // Past a failure there is nothing sensible to run with.
        let stopped = record.failure.is_some() || mode.is_skipped();
        let Some(engine) = record.engine.as_mut().filter(|_| !stopped) else { return Ok(()) };
        let CubeCount::Static(x, y, z) = count else {
            return Err("the number of threadgroups is not known before the launch".into());
        };
        let mut resources = Vec::new();
        for resource in arguments.resources {
            let KernelResource::Buffer(binding) = resource else {
                return Err("an argument is not a buffer".into());
            };
            let length = binding.size_in_used() as usize;
            let resource = self.resource(binding).map_err(|error| error.to_string())?;
            resources.push((resource, length));
        }
        let buffers = resources
            .iter_mut()
            .map(|(resource, length)| Buffer { bytes: &mut resource.write()[..*length] })
            .collect();
        let info = arguments.info.data.iter().flat_map(|word| word.to_le_bytes()).collect();
        engine.launch(Launch { text: &text, buffers, info, count: [x, y, z] })
    }
}

fn failed(reason: String) -> ServerError {
    ServerError::Generic { reason, backtrace: BackTrace::capture() }
}

impl DeviceService for CpuServer {
    fn init(device_id: DeviceId) -> Self {
        Self::new(device_id, apple::properties(), Arc::default())
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        self.utilities.clone() as ServerUtilitiesHandle
    }
}

impl ServerCommunication for CpuServer {}

impl ServerStorage for CpuServer {
    type Storage = BytesStorage;

    fn get_resource(
        &mut self,
        binding: BufferBinding,
        _stream_id: StreamId,
    ) -> Result<ManagedResource<<BytesStorage as ComputeStorage>::Resource>, ServerError> {
        let (start, end) = (binding.offset_start, binding.offset_end);
        Ok(self.memory.managed_resource(binding.memory, start, end)?)
    }
}

impl Server for CpuServer {
    fn initialize_memory(
        &mut self,
        memory: ManagedMemoryHandle,
        size: u64,
        _stream_id: StreamId,
    ) -> Result<(), ServerError> {
        let reserved = self.memory.reserve(size, PageUpdate::Allow, &mut self.failures)?;
        self.memory.bind(reserved, memory.clone(), 0, &mut self.failures)?;
        // A kernel must not count on zeros: all ones are not a number in every float type.
        self.memory.get_resource(memory.binding(), None, None)?.write().fill(0xff);
        Ok(())
    }

    fn logger(&self) -> Arc<ServerLogger> {
        self.utilities.logger.clone()
    }

    fn utilities(&self) -> Arc<ServerUtilities> {
        self.utilities.clone()
    }

    fn read(
        &mut self,
        descriptors: Vec<CopyDescriptor>,
        _stream_id: StreamId,
    ) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        let result = match self.check(Vec::new(), _stream_id) {
            Err(error) => Err(error),
            Ok(()) => descriptors
                .into_iter()
                .map(|descriptor| {
                    let length = descriptor.shape.iter().product::<usize>() * descriptor.elem_size;
                    let bytes = self.resource(descriptor.handle)?.read()[..length].to_vec();
                    Ok(Bytes::from_bytes_vec(bytes))
                })
                .collect(),
        };
        Box::pin(async move { result })
    }

    fn write(&mut self, descriptors: Vec<(CopyDescriptor, Bytes)>, _stream_id: StreamId) {
        for (descriptor, bytes) in descriptors {
            match self.resource(descriptor.handle) {
                Ok(mut resource) => resource.write()[..bytes.len()].copy_from_slice(&bytes),
                Err(error) => {
                    lock(&self.record).failure.get_or_insert(error.to_string());
                }
            }
        }
    }

    fn sync(&mut self, handles: Vec<BufferBinding>, stream_id: StreamId) -> DynFut<Result<(), ServerError>> {
        let result = self.check(handles, stream_id);
        Box::pin(async move { result })
    }

    fn check(&mut self, _handles: Vec<BufferBinding>, _stream_id: StreamId) -> Result<(), ServerError> {
        match &lock(&self.record).failure {
            Some(reason) => Err(failed(reason.clone())),
            None => Ok(()),
        }
    }

    unsafe fn launch(
        &mut self,
        kernel: Box<dyn CubeKernel>,
        count: CubeCount,
        bindings: KernelArguments,
        _stream_id: StreamId,
        launch_mode: LaunchMode,
    ) {
        // The thread that this runs on logs a panic and goes on.
        let run = AssertUnwindSafe(|| self.run(&*kernel, count, bindings, launch_mode));
        let result = catch_unwind(run).unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Err(format!("`{}`: {message}", kernel.name()))
        });
        if let Err(error) = result {
            lock(&self.record).failure.get_or_insert(error);
        }
    }

    fn flush(&mut self, _stream_id: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    fn memory_report(&mut self, stream: StreamId) -> Option<StreamMemoryReport> {
        Some(StreamMemoryReport { stream, pools: self.memory.memory_report(), auxiliary: Vec::new() })
    }

    fn memory_cleanup(&mut self, _stream_id: StreamId) -> Result<(), ServerError> {
        self.memory.cleanup(Cleanup::Explicit, &mut self.failures);
        Ok(())
    }

    fn start_profile(&mut self, _stream_id: StreamId) -> Result<ProfilingToken, ServerError> {
        Err(failed("this device has no clock".into()))
    }

    fn end_profile(
        &mut self,
        _stream_id: StreamId,
        _token: ProfilingToken,
    ) -> Result<ProfileDuration, ProfileError> {
        Err(ProfileError::NotRegistered { backtrace: BackTrace::capture() })
    }

    fn allocation_mode(&mut self, mode: MemoryAllocationMode, _stream_id: StreamId) {
        self.memory.mode(mode);
    }
}
