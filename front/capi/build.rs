//! Gives the shared library the name by which programs that are linked with it look for it.

fn main() {
    // `WEIR_ABI` of include/weir.h; a test compares them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libweir.so.0");
    // Threads of the library may run on after the last disk, so it is never unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
