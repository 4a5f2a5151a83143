//! Fusion: recorded now, run when the stream is drained.

use std::marker::PhantomData;

use burn_fusion::{
    ExecutionError, Fusion, FusionBackend, FusionRuntime,
    custom::{CustomOpIr, HandleContainer, Operation, OperationIr, StreamId},
};

use crate::{
    Cell, RecurrentGradients, RecurrentInputs, RecurrentOps, RecurrentOutputs, RecurrentSaved,
    WantedGradients, custom,
};

#[derive(Debug)]
struct Recurrent<B> {
    desc: CustomOpIr,
    backend: PhantomData<B>,
}

impl<B> Recurrent<B> {
    fn new(desc: &CustomOpIr) -> Self {
        Self { desc: desc.clone(), backend: PhantomData }
    }
}

impl<B: FusionBackend + RecurrentOps> Operation<B::FusionRuntime> for Recurrent<B> {
    fn execute(
        &self,
        handles: &mut HandleContainer<<B::FusionRuntime as FusionRuntime>::FusionHandle>,
    ) -> Result<(), ExecutionError> {
        custom::execute::<B>(handles, &self.desc);
        Ok(())
    }
}

impl<B: FusionBackend + RecurrentOps> RecurrentOps for Fusion<B> {
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
        let operation = Recurrent::<B>::new(&desc);
        custom::name_outputs(client.register(StreamId::current(), OperationIr::Custom(desc), operation))
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
        let operation = Recurrent::<B>::new(&desc);
        let outputs = client.register(StreamId::current(), OperationIr::Custom(desc), operation);
        custom::name_gradients(outputs, wanted)
    }
}
