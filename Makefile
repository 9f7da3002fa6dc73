# `make demo` shows what uncork does, `make test` checks everything; both install missing packages.
# `make help` lists the other targets.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# The library of 2007, if you have built it, with which `make bench` compares.
AUTOCORK_2007 ?=
# A checkout of F-Stack, if you have built it (docs/F-STACK.md), with which `make bench-stack` and `make bench` compare.
FSTACK ?=
# More arguments for `make bench`: --quick, --only redis,nginx, --one-core ...
BENCH_ARGS ?=

# Seconds that `make fuzz` spends on each target; its targets; and the seconds of the short run in `make test`.
FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= capture frame doctor segments conversation attached
TEST_FUZZ_SECONDS ?= 5

DENY_VERSION := 0.20.2

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
RELEASE := $(TARGET)/release
DENY := $(TARGET)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
FUZZ := $(TARGET)/fuzz
export CARGO_TARGET_DIR := $(TARGET)
# A cross build would put its files where the tests do not look.
unexport CARGO_BUILD_TARGET
# Most tests wait most of the time. Those that measure time run alone on the machine.
RUST_TEST_THREADS ?= $(shell expr $$(nproc) + 1)
export RUST_TEST_THREADS
# A failed test tells its story in its message.
export RUST_LIB_BACKTRACE := 0

PROGRAMS := uncork tcp_nodelay_client tcp_nodelay_server
LIBRARIES := libuncork.so libautocork.so

BIN := $(DESTDIR)$(PREFIX)/bin
LIB := $(DESTDIR)$(PREFIX)/lib/uncork
INCLUDE := $(DESTDIR)$(PREFIX)/include
MAN := $(DESTDIR)$(PREFIX)/share/man/man1
DOC := $(DESTDIR)$(PREFIX)/share/doc/uncork
BASH := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
UNITS := $(DESTDIR)$(PREFIX)/lib/systemd/system

.PHONY: build library examples demo test test-dpdk check bench bench-stack soak soak-instances soak-threads soak-xdp corpus fuzz fuzz-build install uninstall clean help setup-demo setup-test setup-dpdk setup-bench setup-corpus

build: examples ## the release build, into target/release, and the examples
	$(CARGO) build --release --workspace --locked
	@$(second-name)

# C programs that know of the stack (examples/), built into out/examples.
EXAMPLES := $(patsubst examples/%.c,out/examples/%,$(wildcard examples/*.c))
# Debian 12 has no libkqueue: the example that needs it is built where libkqueue was built (docs/F-STACK.md).
KQUEUE := $(shell pkg-config --cflags --libs libkqueue 2>/dev/null)
ifeq ($(KQUEUE),)
EXAMPLES := $(filter-out %_kqueue,$(EXAMPLES))
endif

examples: $(EXAMPLES) ## the demonstrations in C, into out/examples

out/examples/%: examples/%.c $(wildcard examples/*.h) include/uncork.h
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -Iinclude -pthread -o $@ $< $(if $(filter %_kqueue,$@),$(KQUEUE))

# Under its second name the library behaves differently. Replaced, not rewritten: it may be in use.
second-name = install -m 755 "$(RELEASE)/libuncork.so" "$(RELEASE)/libautocork.so"

# The tests preload the library that is shipped; all else is tested as built for the tests, in a fraction
# of the time that a release build takes. With link-time optimisation the library is compiled on one core:
# `make test` has work for the other one meanwhile.
library: ## of the release, only libuncork.so: what the tests of real programs preload
	$(CARGO) build --release --package uncork-preload --locked
	@$(second-name)

demo: setup-demo ## the small-write experiment without and with uncork, as a table and a picture
	@$(MAKE) --no-print-directory build
	@mkdir -p out
	"$(RELEASE)/uncork-bench" demo --html out/demo.html

test: setup-test ## every check and every test; what this user may not run is skipped and named
	@echo "the library, and beside it format, lints and licences: what each says is shown at its end"
	@$(MAKE) --no-print-directory -j2 --output-sync=target library check
	@$(MAKE) --no-print-directory fuzz-build
	$(CARGO) test --profile ci --workspace --locked --no-fail-fast
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=$(TEST_FUZZ_SECONDS)

# The feature `dpdk`, which no other target builds.
WITH_DPDK := --profile ci --locked --features dpdk

test-dpdk: setup-dpdk ## the driver over DPDK, which is not built by default: its lints and its tests (as root)
	$(CARGO) clippy $(WITH_DPDK) --no-deps --package uncork-driver --package uncork-serve --package uncork --all-targets \
		-- -D warnings
	$(CARGO) test $(WITH_DPDK) --package uncork-driver --lib --test dpdk
	$(CARGO) test $(WITH_DPDK) --package uncork --test cli -- stack::dpdk::

check: $(DENY) ## format, lints, licences and sources of dependencies, use of crates by crates
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) metadata --manifest-path fuzz/Cargo.toml --locked --format-version 1 >/dev/null
	$(CARGO) clippy --profile ci --workspace --all-targets --locked -- -D warnings
	"$(DENY)" --locked check bans licenses sources
	scripts/arrows

bench: setup-bench ## every figure that the project claims, measured here (BENCH_ARGS=--quick)
	@$(MAKE) --no-print-directory build
	@mkdir -p out
	"$(RELEASE)/uncork-bench" run --json out/bench.json \
		$(if $(AUTOCORK_2007),--autocork-2007 "$(AUTOCORK_2007)") $(WITH_FSTACK) $(BENCH_ARGS)

# The checkout as an argument of uncork-bench.
WITH_FSTACK = $(if $(FSTACK),--fstack "$(FSTACK)")

# The figures of the user-space stack that need devices, and so root; each one that cannot be had is reported.
BENCH_STACK := stack-http,stack-bulk,stack-loss,stack-ping,inline-nginx,inline-workers,inline-files,inline-redis,inline-trip,inline-dial,inline-processes,inline-threads,inline-clients,inline-moderation,inline-bulk,inline-call,stack-ports,inline-ports,inline-fstack

bench-stack: setup-bench ## the user-space stack: in memory against smoltcp, over devices against the kernel's (as root)
	@$(MAKE) --no-print-directory build
	@mkdir -p out
	@status=0; \
	$(CARGO) bench --locked --package uncork-sim --bench stack || status=1; \
	"$(RELEASE)/uncork-bench" run --only $(BENCH_STACK) --json out/bench-stack.json \
		$(WITH_FSTACK) $(BENCH_ARGS) || status=$$?; \
	exit $$status

soak: setup-test ## the tests of real programs at length: about an hour
	@$(MAKE) --no-print-directory library
	$(CARGO) build --profile ci --locked --package uncork
	UNCORK_E2E_SOAK=1 $(CARGO) test --profile ci --locked --package uncork-e2e
	UNCORK_E2E_SOAK=1 $(CARGO) test --profile ci --locked --package uncork --test tune
	UNCORK_E2E_SOAK=1 $(CARGO) test --profile ci --locked --package uncork-engine --test interop
	UNCORK_E2E_SOAK=1 $(CARGO) test --profile ci --locked --package uncork-guard --test malice
	UNCORK_SIM_CASES=20000 $(CARGO) test --profile ci --locked --package uncork-sim --test sim -- chaos::

# The tests that `make test` runs with a stack for each program over packet sockets, run once more in other ways.
# Where other processes occupy the processors, an instance's events reach a program some milliseconds late.
soak-instances: RUST_TEST_THREADS = $(shell nproc)
soak-instances: setup-test ## real programs on the stack once more, on instances (as root; ten minutes)
	@$(MAKE) --no-print-directory library
	$(CARGO) build --profile ci --locked --package uncork
	UNCORK_E2E_INSTANCE=1 $(CARGO) test --profile ci --locked --package uncork-e2e --test e2e -- stack::

soak-threads: RUST_TEST_THREADS = $(shell nproc)
soak-threads: setup-test ## real programs on the stack once more, with a stack for each thread (as root; six minutes)
	@$(MAKE) --no-print-directory library
	$(CARGO) build --profile ci --locked --package uncork
	UNCORK_E2E_THREADS=1 $(CARGO) test --profile ci --locked --package uncork-e2e --test e2e -- on_stack::

soak-xdp: setup-test ## real programs on the stack once more, with AF_XDP (as root; six minutes)
	@$(MAKE) --no-print-directory library
	$(CARGO) build --profile ci --locked --package uncork
	UNCORK_E2E_XDP=1 $(CARGO) test --profile ci --locked --package uncork-e2e --test e2e -- on_stack::

corpus: setup-corpus ## the labelled captures, made anew by real programs (as root; some minutes)
	$(CARGO) build --release --locked --package uncork-corpus
	rm -rf crates/corpus/captures crates/corpus/broken
	"$(RELEASE)/uncork-corpus" make --out crates/corpus/captures
	"$(RELEASE)/uncork-corpus" broken --from crates/corpus/captures/format-loopback.pcap \
		--out crates/corpus/broken

# The coverage instrumentation that libFuzzer needs. The stable compiler has LLVM's pass for it, so neither
# a nightly compiler nor cargo-fuzz is needed (which also works, on the same targets).
# Without a sanitizer: the fuzzed code has no unsafe block.
FUZZ_FLAGS := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares
# Inputs of a target in addition to its own seeds.
FUZZ_MORE_capture := crates/corpus/broken

HOST = $(shell $(CARGO) -vV | sed -n 's/^host: //p')

# The number of targets that run in parallel: each keeps one core busy.
FUZZ_JOBS := 2

fuzz: fuzz-build ## what reads other people's bytes, fed with broken ones (FUZZ_SECONDS=600 each)
	@echo "fuzz: $(FUZZ_TARGETS), $(FUZZ_JOBS) at a time, for $(FUZZ_SECONDS) seconds each"
	@$(MAKE) --no-print-directory -j$(FUZZ_JOBS) --output-sync=target $(FUZZ_TARGETS:%=fuzz-run-%)

# With --target, the flags apply to the targets only, and not to programs that run during the build.
fuzz-build:
	@command -v c++ >/dev/null || { echo "make fuzz needs a C++ compiler (libFuzzer is built" \
		"with it): apt-get install g++" >&2; exit 1; }
	RUSTFLAGS="$(FUZZ_FLAGS)" CARGO_TARGET_DIR="$(FUZZ)" \
		$(CARGO) build --release --locked --manifest-path fuzz/Cargo.toml --target $(HOST)

# New inputs are kept below target/, and those that make a target fail in fuzz/artifacts/.
fuzz-run-%:
	@echo "fuzz: $*"; \
	mkdir -p "$(FUZZ)/corpus/$*" fuzz/artifacts/$*; \
	"$(FUZZ)/$(HOST)/release/$*" "$(FUZZ)/corpus/$*" fuzz/seeds/$* \
		$(FUZZ_MORE_$*) -artifact_prefix=fuzz/artifacts/$*/ -timeout=10 \
		-max_total_time=$(FUZZ_SECONDS) -max_len=4096 -verbosity=0 -print_final_stats=1 \
		>"$(FUZZ)/$*.log" 2>&1 || { cat "$(FUZZ)/$*.log"; exit 1; }; \
	grep '^stat::[na]' "$(FUZZ)/$*.log"

install: ## into $(DESTDIR)$(PREFIX), what `make build` has left
	@for file in $(PROGRAMS) $(LIBRARIES); do test -e "$(RELEASE)/$$file" || { \
		echo "$(RELEASE)/$$file is missing: run make build first" >&2; exit 1; }; done
	install -d "$(BIN)" "$(LIB)" "$(INCLUDE)" "$(MAN)" "$(DOC)" "$(BASH)" "$(ZSH)" "$(FISH)" "$(UNITS)"
	install -m 755 $(foreach file,$(PROGRAMS),"$(RELEASE)/$(file)") "$(BIN)"
	install -m 755 $(foreach file,$(LIBRARIES),"$(RELEASE)/$(file)") "$(LIB)"
	install -m 644 include/uncork.h "$(INCLUDE)"
	install -m 644 man/*.1 "$(MAN)"
	install -m 644 docs/*.md "$(DOC)"
	sed 's|@BIN@|$(PREFIX)/bin|' systemd/uncorkd.service >"$(UNITS)/uncorkd.service"
	chmod 644 "$(UNITS)/uncorkd.service"
	for program in $(PROGRAMS); do \
		install -m 644 completions/$$program.bash "$(BASH)/$$program" && \
		install -m 644 completions/_$$program "$(ZSH)" && \
		install -m 644 completions/$$program.fish "$(FISH)" || exit 1; done

uninstall: ## what `make install` with the same PREFIX and DESTDIR has installed
	rm -f $(foreach file,$(PROGRAMS),"$(BIN)/$(file)" "$(BASH)/$(file)" "$(ZSH)/_$(file)" "$(FISH)/$(file).fish")
	rm -f $(foreach file,$(LIBRARIES),"$(LIB)/$(file)") $(foreach page,$(notdir $(wildcard man/*.1)),"$(MAN)/$(page)")
	rm -f "$(INCLUDE)/uncork.h" "$(UNITS)/uncorkd.service" $(foreach page,$(notdir $(wildcard docs/*.md)),"$(DOC)/$(page)")
	[ ! -d "$(DOC)" ] || rmdir "$(DOC)"
	[ ! -d "$(LIB)" ] || rmdir "$(LIB)"

clean: ## removes all that was built
	$(CARGO) clean
	rm -rf out

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

setup-demo:
	@scripts/setup demo

setup-test:
	@scripts/setup test

setup-dpdk:
	@scripts/setup dpdk

setup-bench:
	@scripts/setup bench

setup-corpus:
	@scripts/setup corpus

# Unoptimised: it builds in a minute instead of three, and its checks still take half a second.
$(DENY):
	CARGO_PROFILE_DEV_DEBUG=false $(CARGO) install cargo-deny --locked --debug --version $(DENY_VERSION) \
		--root "$(TARGET)/tools/cargo-deny-$(DENY_VERSION)" \
		--target-dir "$(TARGET)/tools/build"
	rm -rf "$(TARGET)/tools/build"
