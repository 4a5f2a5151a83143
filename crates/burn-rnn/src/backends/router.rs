//! Remote and Capture: recorded here, run by whoever registered the operations.

use burn::backend::ir::{BackendIr, OperationIr};
use burn_router::{BackendRouter, CustomOpRegistry, RouterChannel, RouterClient};

use crate::{
    Cell, RecurrentGradients, RecurrentInputs, RecurrentOps, RecurrentOutputs, RecurrentSaved,
    WantedGradients, custom,
};

/// Registers the recurrent operations with a remote server or an interpreter of captured graphs.
///
/// Pass the registry to `TensorInterpreter::with_custom_ops` or to a remote server's `with_custom_ops`. The
/// backend `B` that runs them needs its own feature of this crate; clients need `remote` or `capture`.
pub fn register_recurrent_ops<B: BackendIr + RecurrentOps>(registry: &mut CustomOpRegistry<B>) {
    for id in [custom::FORWARD, custom::BACKWARD] {
        registry.register(id, |handles, desc, _device| custom::execute::<B>(handles, desc));
    }
}

impl<C: RouterChannel> RecurrentOps for BackendRouter<C> {
    fn recurrent_forward(
        inputs: RecurrentInputs<Self>,
        cell: Cell,
        training: bool,
    ) -> RecurrentOutputs<Self> {
        let client = inputs.recurrent_weight.as_ref().expect("always present").client.clone();
        let desc = custom::forward(
            inputs,
            cell,
            training,
            |tensor| tensor.into_ir(),
            || client.create_empty_handle(),
        );
        custom::name_outputs(client.register(OperationIr::Custom(desc)))
    }

    fn recurrent_backward(
        inputs: RecurrentInputs<Self>,
        saved: RecurrentSaved<Self>,
        wanted: WantedGradients,
        cell: Cell,
    ) -> RecurrentGradients<Self> {
        let client = inputs.recurrent_weight.as_ref().expect("always present").client.clone();
        let desc = custom::backward(
            inputs,
            saved,
            wanted,
            cell,
            |tensor| tensor.into_ir(),
            || client.create_empty_handle(),
        );
        custom::name_gradients(client.register(OperationIr::Custom(desc)), wanted)
    }
}
