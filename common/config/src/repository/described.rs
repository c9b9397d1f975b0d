//! Models that other servers describe by the protocol's metadata: entries made of it or compared.

use std::fmt;
use std::path::Path;

use parapet_open_inference::{Excerpt, ModelMetadata, TensorMetadata};

use crate::FileError;
use crate::repository::{ModelEntry, ModelToml, Platform, TensorSpec};

impl ModelEntry {
    /// The entry of a model that is in no repository, without tensors yet; servers choose the
    /// version if it is `None`.
    pub fn unknown(name: &str, version: Option<u64>) -> Self {
        let toml = ModelToml {
            name: name.to_owned(),
            platform: Platform::Foreign(String::new()),
            inputs: Vec::new(),
            outputs: Vec::new(),
            output: None,
            code: None,
            training: toml::Table::new(),
        };
        Self { toml, versions: Vec::from_iter(version), folder: None }
    }

    /// The same with the tensors of another model.
    #[must_use]
    pub fn alike(mut self, other: &Self) -> Self {
        (self.toml.inputs, self.toml.outputs) = (other.inputs.clone(), other.outputs.clone());
        self
    }

    /// The same as `metadata` describes it, with its newest version where none was named, 1 if it
    /// has none; `source` says in errors where it is from.
    pub fn described(mut self, metadata: &ModelMetadata, source: &str) -> Result<Self, FileError> {
        let path = Path::new(source);
        let specs = |tensors: &[TensorMetadata]| {
            let specs = tensors.iter().map(TensorSpec::of_metadata);
            specs.collect::<Result<_, _>>().map_err(|problem| FileError::new(path, problem))
        };
        self.toml.platform = Platform::Foreign(metadata.platform.clone());
        (self.toml.inputs, self.toml.outputs) =
            (specs(&metadata.inputs)?, specs(&metadata.outputs)?);
        self.toml.validate(path)?;
        if self.versions.is_empty() {
            let newest = metadata.versions.iter().filter_map(|version| version.parse().ok()).max();
            self.versions.push(newest.unwrap_or(1));
        }
        Ok(self)
    }

    /// Compares what a server says of the model with this entry, in any order of tensors. An axis
    /// of any length (-1) fits, and so do further outputs. Metadata without tensors says nothing.
    ///
    /// # Errors
    /// One line that says what differs.
    pub fn check_metadata(&self, metadata: &ModelMetadata) -> Result<(), String> {
        if metadata.inputs.is_empty() && metadata.outputs.is_empty() {
            return Ok(());
        }
        let inputs = ("input", &self.inputs, &metadata.inputs);
        for (kind, own, theirs) in [inputs, ("output", &self.outputs, &metadata.outputs)] {
            for spec in own {
                let name = &spec.name;
                let tensor = theirs
                    .iter()
                    .find(|tensor| tensor.name == *name)
                    .ok_or_else(|| format!("it has no {kind} {name:?}, which the model has"))?;
                if !spec.fits(tensor) {
                    let (theirs, own) = (Shown(tensor), spec.metadata());
                    let own = Shown(&own);
                    return Err(format!(
                        "its {kind} {name:?} is {theirs}, where the model has {own}"
                    ));
                }
            }
        }
        let is_own = |name: &str| self.inputs.iter().any(|spec| spec.name == *name);
        metadata.inputs.iter().find(|tensor| !is_own(&tensor.name)).map_or(Ok(()), |tensor| {
            let name = Excerpt::from(&tensor.name);
            Err(format!("it has an input {name:?}, which the model does not have"))
        })
    }
}

impl TensorSpec {
    /// The reverse of [`metadata`](Self::metadata).
    fn of_metadata(tensor: &TensorMetadata) -> Result<Self, String> {
        let (name, shown) = (Excerpt::from(&tensor.name), Shown(tensor));
        let Some((-1, sample)) = tensor.shape.split_first() else {
            return Err(format!(
                "tensor {name:?} is {shown}, without a batch axis (-1) in front; have the server \
                 batch the model (Triton: max_batch_size above 0)"
            ));
        };
        let shape = sample.to_vec().try_into();
        let shape = shape.map_err(|_| format!("tensor {name:?} is {shown}: not a shape"))?;
        Ok(Self { name: tensor.name.clone(), datatype: tensor.datatype, shape })
    }

    /// Returns true if a server with `tensor` takes or gives this one's samples, at least singly.
    fn fits(&self, tensor: &TensorMetadata) -> bool {
        let Some((-1 | 1, sample)) = tensor.shape.split_first() else { return false };
        tensor.datatype == self.datatype && self.shape.fits(sample)
    }
}

/// Datatype and shape, of which a server has chosen the length.
struct Shown<'a>(&'a TensorMetadata);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.datatype, Excerpt::from(&format!("{:?}", self.0.shape)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::Datatype;
    use proptest::prelude::*;

    fn tensor(name: &str, datatype: Datatype, shape: &[i64]) -> TensorMetadata {
        TensorMetadata { name: name.to_owned(), datatype, shape: shape.to_vec() }
    }

    fn metadata(inputs: &[TensorMetadata]) -> ModelMetadata {
        ModelMetadata {
            name: "digits".to_owned(),
            versions: vec!["3".to_owned()],
            platform: "tensorrt_plan".to_owned(),
            inputs: inputs.to_vec(),
            outputs: vec![tensor("y", Datatype::Fp32, &[-1, 10])],
        }
    }

    fn describe(metadata: &ModelMetadata) -> Result<ModelEntry, String> {
        let entry = ModelEntry::unknown("digits", None);
        let described = entry.described(metadata, "http://a:1/v2/models/digits");
        described.map_err(|error| error.to_string())
    }

    /// `x` and `mask`.
    fn two(x: &[i64], mask: Datatype) -> ModelMetadata {
        metadata(&[tensor("x", Datatype::Fp32, x), tensor("mask", mask, &[-1, 4])])
    }

    proptest! {
        #[test]
        fn an_entry_of_metadata_has_the_same_metadata(
            shapes in prop::collection::btree_map(
                "[a-z]{1,3}",
                prop::collection::vec(prop::sample::select(vec![-1_i64, 1, 2, 8]), 0..4),
                1..4,
            ),
            datatype in prop::sample::select(Datatype::ALL.to_vec()),
        ) {
            let batched = |shape: &[i64]| [&[-1], shape].concat();
            let inputs: Vec<_> = shapes.iter()
                .map(|(name, shape)| tensor(name, datatype, &batched(shape))).collect();
            let given = metadata(&inputs);
            let entry = describe(&given).unwrap();
            prop_assert_eq!(entry.metadata(), given.clone());
            prop_assert_eq!(entry.check_metadata(&given), Ok(()));
        }
    }

    #[test]
    fn the_version_is_the_one_asked_for_or_the_newest_or_the_first() {
        let mut given = metadata(&[tensor("x", Datatype::Fp32, &[-1, 4])]);
        for (versions, asked, version) in
            [(&["10", "2", "draft"][..], None, 10), (&[], None, 1), (&["10"], Some(7), 7)]
        {
            given.versions = versions.iter().map(|&version| version.to_owned()).collect();
            let entry = ModelEntry::unknown("digits", asked).described(&given, "a").unwrap();
            assert_eq!((entry.latest(), entry.is_in_repository()), (version, false));
        }
    }

    #[test]
    fn metadata_that_describes_no_batched_model_is_refused_with_the_fix() {
        let fp32 = |shape: &[i64]| metadata(&[tensor("x", Datatype::Fp32, shape)]);
        for (given, part) in [
            (fp32(&[4]), "FP32 [4], without a batch axis (-1) in front; have the server batch"),
            (fp32(&[]), "without a batch axis"),
            (fp32(&[-1, -2, 4]), "FP32 [-1, -2, 4]: not a shape"),
            (fp32(&[-1, 0]), "no or too many elements"),
            (metadata(&[]), "inputs: empty"),
        ] {
            let error = describe(&given).unwrap_err();
            assert!(error.contains(part) && error.starts_with("http://a:1"), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn metadata_fits_in_any_order_and_with_axes_of_any_length() {
        let entry = describe(&two(&[-1, 3, 32], Datatype::Bool)).unwrap();
        let mut same = two(&[-1, 3, 32], Datatype::Bool);
        same.inputs.reverse();
        same.outputs.insert(0, tensor("embedding", Datatype::Fp32, &[-1, 512]));
        let unnamed = ModelMetadata { outputs: Vec::new(), ..metadata(&[]) };
        let others = [two(&[-1, 3, -1], Datatype::Bool), two(&[1, 3, 32], Datatype::Bool)];
        for fits in others.iter().chain([&same, &unnamed]) {
            assert_eq!(entry.check_metadata(fits), Ok(()), "{fits:?}");
        }
    }

    #[test]
    fn an_axis_of_any_length_fits_no_server_that_fixes_it() {
        let entry = describe(&two(&[-1, -1, 32], Datatype::Bool)).unwrap();
        assert_eq!(entry.check_metadata(&two(&[-1, -1, 32], Datatype::Bool)), Ok(()));
        let differs = entry.check_metadata(&two(&[-1, 3, 32], Datatype::Bool)).unwrap_err();
        assert!(differs.ends_with("FP32 [-1, 3, 32], where the model has FP32 [-1, -1, 32]"));
    }

    #[test]
    fn a_difference_names_the_tensor_and_both_sides() {
        let entry = describe(&two(&[-1, 3, 32], Datatype::Bool)).unwrap();
        let mut further = two(&[-1, 3, 32], Datatype::Bool);
        further.inputs.push(tensor("z\n", Datatype::Fp32, &[-1, 1]));
        let no_mask = metadata(&[tensor("x", Datatype::Fp32, &[-1, 3, 32])]);
        let no_output = ModelMetadata { outputs: Vec::new(), ..further.clone() };
        for (given, said) in [
            (
                two(&[-1, 3, 28], Datatype::Bool),
                r#"its input "x" is FP32 [-1, 3, 28], where the model has FP32 [-1, 3, 32]"#,
            ),
            (
                two(&[-1, 3, 32], Datatype::Int8),
                r#"its input "mask" is INT8 [-1, 4], where the model has BOOL [-1, 4]"#,
            ),
            (
                two(&[3, 32], Datatype::Bool),
                r#"its input "x" is FP32 [3, 32], where the model has FP32 [-1, 3, 32]"#,
            ),
            (
                two(&[8, 3, 32], Datatype::Bool),
                r#"its input "x" is FP32 [8, 3, 32], where the model has FP32 [-1, 3, 32]"#,
            ),
            (no_mask, r#"it has no input "mask", which the model has"#),
            (no_output, r#"it has no output "y", which the model has"#),
            (further, r#"it has an input "z\n", which the model does not have"#),
        ] {
            assert_eq!(entry.check_metadata(&given), Err(said.to_owned()));
        }
    }
}
