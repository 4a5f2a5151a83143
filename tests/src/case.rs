//! Reading case files: a safetensors file whose header says, under the key `case`, what it holds.
//!
//! Reading is strict. An option, a tensor or an expectation that this suite does not know makes the case
//! unreadable, since ignoring it could let a wrong result pass.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use burn::tensor::{DType, TensorData};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    framework::{keras::Keras, onnx::Onnx, pytorch::PyTorch},
    op::Op,
};

/// Why a case could not be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The folder or file could not be read.
    #[error("cannot read {path}: {reason}")]
    Io {
        /// The folder or file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// The file is not in the safetensors format.
    #[error("not a safetensors file: {0}")]
    Format(String),
    /// The header has no metadata key `case`.
    #[error("the header has no metadata key `case`")]
    NoCase,
    /// The metadata key `case` is not what it should be.
    #[error("the metadata key `case` is wrong: {0}")]
    Metadata(String),
    /// A tensor is missing, unknown or of the wrong shape or type.
    #[error("tensor `{tensor}` {problem}")]
    Tensor {
        /// The tensor's name in the file.
        tensor: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl CaseError {
    pub(crate) fn tensor(tensor: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Tensor { tensor: tensor.into(), problem: problem.into() }
    }
}

/// What a case is, apart from its tensors.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// One of the operations, forward and gradients.
    Op(Op),
    /// A `torch.nn.GRU` or `torch.nn.RNN`, forward and gradients.
    PyTorch(PyTorch),
    /// An ONNX `GRU` or `RNN` node.
    Onnx(Onnx),
    /// A Keras `GRU` or `SimpleRNN` layer.
    Keras(Keras),
}

/// One case: what to run, on which inputs, and the right answers.
#[derive(Clone, Debug)]
pub struct Case {
    name: String,
    kind: Kind,
    truth: String,
    inputs: BTreeMap<String, TensorData>,
    expected: BTreeMap<String, TensorData>,
}

impl Case {
    /// Reads a case file.
    ///
    /// # Errors
    ///
    /// A [`CaseError`] if the file can't be read, isn't in the format, or holds an option or a tensor that
    /// this suite doesn't know.
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let bytes = fs::read(path).map_err(|error| io(path, error))?;
        Self::parse(&name_of(path), &bytes)
    }

    /// Reads a case from the bytes of its file.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, CaseError> {
        let format = |error: safetensors::SafeTensorError| CaseError::Format(error.to_string());
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(format)?;
        let text = metadata.metadata().as_ref().and_then(|metadata| metadata.get("case"));
        let text = text.ok_or(CaseError::NoCase)?;
        let mut options: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| CaseError::Metadata(error.to_string()))?;

        let mut inputs = BTreeMap::new();
        let mut expected = BTreeMap::new();
        for (name, view) in SafeTensors::deserialize(bytes).map_err(format)?.iter() {
            let data = data_of(name, &view)?;
            match name.strip_prefix("expect.") {
                Some(name) => expected.insert(name.to_string(), data),
                None => inputs.insert(name.to_string(), data),
            };
        }

        let truth = match options.remove("truth") {
            None => String::new(),
            Some(Value::String(truth)) => truth,
            Some(other) => return Err(CaseError::Metadata(format!("`truth` must be a text, got {other}"))),
        };
        let kind = match options.remove("kind") {
            Some(Value::String(kind)) => kind,
            Some(other) => return Err(CaseError::Metadata(format!("`kind` must be a text, got {other}"))),
            None => return Err(CaseError::Metadata("there is no `kind`".into())),
        };
        let kind = match kind.as_str() {
            "op" => Kind::Op(Op::read(options)?),
            "pytorch" => Kind::PyTorch(from_options(options)?),
            "onnx" => Kind::Onnx(from_options(options)?),
            "keras" => Kind::Keras(from_options(options)?),
            other => {
                return Err(CaseError::Metadata(format!(
                    "`kind` must be `op`, `pytorch`, `onnx` or `keras`, got `{other}`"
                )));
            }
        };
        let case = Self { name: name.into(), kind, truth, inputs, expected };
        match &case.kind {
            Kind::Op(op) => op.check(&case)?,
            Kind::PyTorch(module) => module.check(&case)?,
            Kind::Onnx(node) => node.check(&case)?,
            Kind::Keras(layer) => layer.check(&case)?,
        }
        Ok(case)
    }

    /// The file's name without its extension.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the case is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether the right answers come from a peer that computed them in float32, so that they are right to
    /// its precision only.
    pub fn is_from_float32_peer(&self) -> bool {
        self.truth.contains("float32")
    }

    /// The tensors the case starts from.
    pub fn inputs(&self) -> &BTreeMap<String, TensorData> {
        &self.inputs
    }

    /// The right answers, by the name that follows `expect.` in the file.
    pub fn expected(&self) -> &BTreeMap<String, TensorData> {
        &self.expected
    }

    /// An input that must be there, with the given rank.
    pub(crate) fn require(&self, name: &str, ranks: &[usize]) -> Result<&TensorData, CaseError> {
        self.input(name, ranks)?.ok_or_else(|| CaseError::tensor(name, "is missing"))
    }

    /// An input that may be absent, with one of the given ranks.
    pub(crate) fn input(&self, name: &str, ranks: &[usize]) -> Result<Option<&TensorData>, CaseError> {
        let Some(data) = self.inputs.get(name) else { return Ok(None) };
        if !ranks.contains(&data.rank()) {
            let ranks: Vec<_> = ranks.iter().map(usize::to_string).collect();
            let problem = format!("must have rank {}, got the shape {:?}", ranks.join(" or "), dims(data));
            return Err(CaseError::tensor(name, problem));
        }
        Ok(Some(data))
    }

    /// Fails unless every tensor of the case is known.
    pub(crate) fn allow(
        &self,
        input: impl Fn(&str) -> bool,
        expected: impl Fn(&str) -> bool,
    ) -> Result<(), CaseError> {
        if let Some(name) = self.inputs.keys().find(|name| !input(name)) {
            return Err(CaseError::tensor(name, "is no input of this kind of case"));
        }
        if let Some(name) = self.expected.keys().find(|name| !expected(name)) {
            return Err(CaseError::tensor(format!("expect.{name}"), "is no result of this kind of case"));
        }
        if self.expected.is_empty() {
            return Err(CaseError::tensor("expect.*", "is missing: the case expects nothing"));
        }
        Ok(())
    }
}

/// The case files of a folder, in the order of their names. Other files are passed over.
///
/// # Errors
///
/// [`CaseError::Io`] if the folder can't be read.
pub fn case_files(folder: &Path) -> Result<Vec<PathBuf>, CaseError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| io(folder, error))? {
        let path = entry.map_err(|error| io(folder, error))?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The name under which a case file is reported.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Options of a kind of case, all of them known.
pub(crate) fn from_options<T: DeserializeOwned>(options: Map<String, Value>) -> Result<T, CaseError> {
    serde_json::from_value(Value::Object(options)).map_err(|error| CaseError::Metadata(error.to_string()))
}

pub(crate) fn dims(data: &TensorData) -> Vec<usize> {
    data.shape().as_slice().to_vec()
}

fn io(path: &Path, error: std::io::Error) -> CaseError {
    CaseError::Io { path: path.display().to_string(), reason: error.to_string() }
}

fn data_of(name: &str, view: &TensorView) -> Result<TensorData, CaseError> {
    let dtype = match view.dtype() {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        other => return Err(CaseError::tensor(name, format!("has the unknown element type {other:?}"))),
    };
    TensorData::try_from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), dtype)
        .map_err(|error| CaseError::tensor(name, error.to_string()))
}

/// Fails unless the tensor holds numbers of the right sort.
pub(crate) fn check_integers(name: &str, data: &TensorData, integers: bool) -> Result<(), CaseError> {
    if matches!(data.dtype(), DType::I32 | DType::I64) == integers {
        return Ok(());
    }
    let expected = if integers { "integers" } else { "floating-point numbers" };
    Err(CaseError::tensor(name, format!("must hold {expected}, got {:?}", data.dtype())))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A case file of one step of an RNN of one unit.
    fn file(case: &str, extra: &[&str]) -> Vec<u8> {
        let value = 1f32.to_le_bytes();
        let expected = 1f64.to_le_bytes();
        let view = |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
        let mut tensors = vec![
            ("source", view(Dtype::F32, &[1, 1, 1], &value[..])),
            ("recurrent_weight", view(Dtype::F32, &[1, 1], &value[..])),
            ("output_gradient", view(Dtype::F32, &[1, 1, 1], &value[..])),
            ("expect.output", view(Dtype::F64, &[1, 1, 1], &expected[..])),
            ("expect.grad.source", view(Dtype::F64, &[1, 1, 1], &expected[..])),
            ("expect.grad.recurrent_weight", view(Dtype::F64, &[1, 1], &expected[..])),
        ];
        for name in extra {
            let tensor = match name.starts_with("expect.") {
                true => view(Dtype::F64, &[1, 1], &expected[..]),
                false => view(Dtype::F32, &[1, 1], &value[..]),
            };
            tensors.push((name, tensor));
        }
        let metadata = HashMap::from([("case".to_string(), case.to_string())]);
        safetensors::serialize(tensors, Some(metadata)).unwrap()
    }

    const RELU: &str = r#"{"kind": "op", "cell": "single_gate_rnn", "descriptor": {"activation": "relu"}}"#;

    fn error(case: &str, extra: &[&str]) -> String {
        Case::parse("case", &file(case, extra)).unwrap_err().to_string()
    }

    #[test]
    fn a_case_is_read() {
        let case = Case::parse("case", &file(RELU, &["init_state", "expect.grad.init_state"])).unwrap();
        assert!(matches!(case.kind(), Kind::Op(_)));
        assert_eq!(case.inputs().len(), 4);
        let expected: Vec<_> = case.expected().keys().collect();
        assert_eq!(expected, ["grad.init_state", "grad.recurrent_weight", "grad.source", "output"]);
    }

    #[test]
    fn what_is_unknown_is_refused() {
        assert!(error(RELU, &["peephole"]).contains("`peephole` is no input"));
        assert!(error(RELU, &["expect.z"]).contains("`expect.z` is no result"));
        assert!(error(RELU, &["secondary_bias"]).contains("`secondary_bias`"));
        assert!(error(&RELU.replace("\"activation\"", "\"activated\""), &[]).contains("activated"));
        assert!(error(&RELU.replace("relu", "selu"), &[]).contains("selu"));
        assert!(error(&RELU.replace("\"cell\"", "\"new\": 1, \"cell\""), &[]).contains("new"));
        assert!(error(&RELU.replace("single_gate_rnn", "lstm"), &[]).contains("lstm"));
        assert!(error(&RELU.replace("op", "jax"), &[]).contains("jax"));
        assert!(error("{", &[]).contains("`case` is wrong"));
    }

    #[test]
    fn what_is_no_case_is_refused() {
        let bytes = safetensors::serialize(Vec::<(&str, TensorView)>::new(), None).unwrap();
        assert_eq!(Case::parse("case", &bytes).unwrap_err(), CaseError::NoCase);
        assert!(matches!(Case::parse("case", b"text").unwrap_err(), CaseError::Format(_)));
        let missing = Case::read(Path::new("no/such/case.safetensors")).unwrap_err();
        assert!(missing.to_string().contains("cannot read no/such/case.safetensors"));
    }
}
