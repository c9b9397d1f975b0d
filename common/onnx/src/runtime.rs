//! Finding and loading ONNX Runtime: one library and one environment in a process.

use std::path::{Path, PathBuf};

use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::SessionBuilder;
use parking_lot::Mutex;

const VARIABLE: &str = "ORT_DYLIB_PATH";
const FILE_NAME: &str = "libonnxruntime.so";
/// Where `cargo xtask setup` puts it, seen from the repository's root.
const SET_UP: &str = ".native/onnxruntime/libonnxruntime.so";

/// ONNX Runtime, loaded.
#[derive(Clone)]
pub struct OnnxRuntime {
    environment: Environment,
    library: PathBuf,
}

/// ONNX Runtime is not there, or cannot be loaded; one line with the fix.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RuntimeError(String);

/// ONNX Runtime allows one environment in a process, for ever.
static LOADED: Mutex<Option<OnnxRuntime>> = Mutex::new(None);

impl OnnxRuntime {
    /// Loads ONNX Runtime, once in a process: from `explicit`, else from where `ORT_DYLIB_PATH`
    /// says, else from beside the executable, else from `.native/onnxruntime` in one of the
    /// folders above it.
    ///
    /// # Errors
    /// If it is not there, or the library does not fit.
    pub fn load(explicit: Option<&Path>) -> Result<Self, RuntimeError> {
        let mut loaded = LOADED.lock();
        if let Some(runtime) = &*loaded {
            return Ok(runtime.clone());
        }
        let variable = std::env::var_os(VARIABLE).map(PathBuf::from);
        let variable = variable.filter(|value| !value.as_os_str().is_empty());
        let path = find(explicit.or(variable.as_deref()), std::env::current_exe().ok().as_deref())?;
        let failed = |reason: String| {
            let path = path.display();
            RuntimeError(format!(
                "{path}: cannot load ONNX Runtime: {reason}; run `cargo xtask setup` for a version \
                    that fits"
            ))
        };
        let builder = ort::init_from(&path).map_err(|error| failed(one_line(&error)))?;
        let environment = builder.with_telemetry(false).build();
        let environment = environment.map_err(|error| failed(one_line(&error)))?;
        Ok(loaded.insert(Self { environment, library: path }).clone())
    }

    /// Path of the library that was loaded.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// A session to be, on the processor until it is given a provider; its operators use `threads`
    /// threads, the caller's among them.
    ///
    /// # Errors
    /// If ONNX Runtime refuses the settings.
    pub fn session(&self, threads: usize) -> ort::Result<SessionBuilder> {
        Ok(Session::builder(&self.environment)?
            .with_intra_threads(threads)?
            .with_inter_threads(1)?
            // Spinning threads take the processor away from the other instances of a machine.
            .with_intra_op_spinning(false)?
            .with_inter_op_spinning(false)?)
    }
}

impl std::fmt::Debug for OnnxRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnnxRuntime").finish_non_exhaustive()
    }
}

/// An error's message on one line, for logs and for clients.
pub fn one_line(error: &impl std::fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A named library must be there; silently taking another would hide a mistake.
fn find(named: Option<&Path>, executable: Option<&Path>) -> Result<PathBuf, RuntimeError> {
    let searched: Vec<PathBuf> = match (named, executable.and_then(Path::parent)) {
        (Some(named), _) => vec![named.to_owned()],
        (None, Some(folder)) => {
            let set_up = folder.ancestors().map(|folder| folder.join(SET_UP));
            [folder.join(FILE_NAME)].into_iter().chain(set_up).collect()
        }
        (None, None) => Vec::new(),
    };
    let found = searched.iter().find(|path| path.is_file()).cloned();
    found.ok_or_else(|| {
        let searched: Vec<_> = searched.iter().map(|path| path.to_string_lossy()).collect();
        let searched = searched.join(", ");
        RuntimeError(format!(
            "ONNX Runtime not found ({searched}): run `cargo xtask setup`, or name {FILE_NAME} \
                with --onnxruntime or {VARIABLE}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_nearest_library_is_taken() {
        let root = tempfile::tempdir().unwrap();
        let executable = root.path().join("target/debug/parapet-instance");
        let error = find(None, Some(&executable)).unwrap_err().to_string();
        assert!(error.contains("cargo xtask setup") && !error.contains('\n'), "{error}");

        let set_up = root.path().join(SET_UP);
        fs::create_dir_all(set_up.parent().unwrap()).unwrap();
        fs::write(&set_up, b"").unwrap();
        assert_eq!(find(None, Some(&executable)).unwrap(), set_up);

        let beside = root.path().join("target/debug").join(FILE_NAME);
        fs::create_dir_all(beside.parent().unwrap()).unwrap();
        fs::write(&beside, b"").unwrap();
        assert_eq!(find(None, Some(&executable)).unwrap(), beside);

        assert_eq!(find(Some(&set_up), Some(&executable)).unwrap(), set_up);
        assert!(find(Some(&root.path().join("gone.so")), Some(&executable)).is_err());
    }
}
