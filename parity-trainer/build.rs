//! Puts libtorch's folder into the run path of this package's binaries and tests, so that they
//! start with no environment; notes libtorch's version.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    println!("cargo::rerun-if-env-changed=LIBTORCH_LIB");
    // LIBTORCH_LIB overrides LIBTORCH in torch-sys too; both name the folder above `lib`.
    let libtorch = std::env::var("LIBTORCH_LIB").or_else(|_| std::env::var("LIBTORCH"));
    if let Ok(libtorch) = libtorch {
        let lib = std::path::Path::new(&libtorch).join("lib");
        if let Ok(version) =
            std::fs::read_to_string(std::path::Path::new(&libtorch).join("build-version"))
        {
            println!("cargo::rustc-env=PARITY_TRAINER_LIBTORCH={}", version.trim());
        }
        println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
    }
}
