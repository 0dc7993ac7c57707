# The commands of this repository. README.md says what `make run` and `make test` print,
# docs/install.md what the others do.

# rustup installs here; a shell that was open before the installation does not know it yet.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help run test release library install uninstall deb toolchain checkers

help:
	@echo 'make run    serve a 1 GiB disk over NBD on this machine'
	@echo 'make test   build, check and test everything'
	@echo 'make install [PREFIX=/usr/local] [DESTDIR=] [WEIR=PROGRAM]    install weir, WEIR if it is built,'
	@echo '     [LIBDIR=PREFIX/lib] [LIBWEIR=LIBRARY]                    and the library for C, likewise'
	@echo 'make uninstall [PREFIX=/usr/local] [DESTDIR=]                 take it away again'
	@echo 'make deb [WEIR=PROGRAM] [LIBWEIR=LIBRARY]                     a Debian package in target/deb'

run: toolchain
	cargo run --profile quick -p weir-cli --bin weir -- serve

# The program that is installed. One that is named was built by who named it.
BUILT := $(if $(filter undefined,$(origin WEIR)),release)
# The library for C is built with the program only, and may be named as well.
LIBWEIR_BUILT := $(if $(filter undefined,$(origin LIBWEIR)),$(if $(BUILT),library))
WEIR ?= target/release/weir
LIBWEIR ?= $(if $(BUILT),target/release/libweir_capi.so)
PREFIX ?= /usr/local
install uninstall deb: export WEIR := $(WEIR)
install uninstall: export PREFIX := $(PREFIX)
install uninstall: export DESTDIR := $(DESTDIR)
install uninstall: export LIBDIR := $(LIBDIR)
install deb: export LIBWEIR := $(LIBWEIR)

install deb: $(BUILT)
install deb: $(LIBWEIR_BUILT)

release: toolchain
	cargo build --release -p weir-cli --bin weir

# As a shared library alone, it is optimised as a whole.
library: toolchain
	cargo rustc --release -p weir-capi --lib --crate-type cdylib

install:
	contrib/install.sh install

uninstall:
	contrib/install.sh uninstall

deb:
	contrib/deb/build.sh

# What cargo keeps for the next build of the same sources is more than half of target/, and saves
# nothing in a build of everything.
CARGO_INCREMENTAL ?= 0
test: export CARGO_INCREMENTAL := $(CARGO_INCREMENTAL)

test: toolchain checkers
	@tests/before.sh
	tests/packages.sh
	cargo xtask ci smoke
	cargo xtask ci test
	cargo xtask ci loom
	cargo xtask ci sanitize
	cargo xtask ci bench
	@tests/before.sh --ended

toolchain:
	@command -v cargo >/dev/null || { \
	    echo 'weir is built with Rust 1.88 or newer, and there is no cargo here. Install it with:'; \
	    echo "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"; \
	    echo 'then run the same make command again.'; \
	    exit 1; } >&2
	@command -v cc >/dev/null || { \
	    echo 'Rust links with the C compiler, and there is no cc here. On Debian install it with:'; \
	    echo '    apt-get install gcc libc6-dev'; \
	    exit 1; } >&2

checkers:
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || { \
	    echo 'The tests need rustfmt and clippy. Install them with:'; \
	    echo '    rustup component add rustfmt clippy'; \
	    exit 1; } >&2
