# Two commands do all set-up: `make demo` and `make test`. The rest is for those who change Stoker.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/*.cmake native/include/*.h native/src/*.c native/src/*.h native/src/simd/*.c native/src/simd/*.h) $(wildcard src/stoker/device/kernels/*)
C_FILES := $(wildcard native/include/*.h native/src/*.c native/src/*.h native/src/simd/*.c native/src/simd/*.h native/test/*.c native/test/*.h native/fuzz/*.c) $(wildcard src/stoker/device/kernels/*)
CLANG  := $(shell command -v clang || command -v clang-14 || command -v gcc)
FUZZER := $(shell for c in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do command -v $$c && break; done)
ARM64_PACKAGES := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
FUZZ_SECONDS ?= 1800
SOAK_SECONDS ?= 600
RACES ?= 4 3
SOAK_ITERATIONS ?= 1000000
WHEEL_TARGET ?= $(shell uname -m)-linux-gnu.2.28
CHECK_TORCH ?= torch
GIL_OPTIONS ?= --quick
CORE_TESTS ?= tests/batch tests/engine tests/image tests/kernel tests/loader tests/plan tests/source tests/stage

.PHONY: demo test test-core check docs check-arm64 wheel check-wheel bench sanitize races fuzz faults soak format clean

demo: $(VENV)/.installed
	$(BIN)/stoker demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal

check: $(VENV)/.check
	$(BIN)/ruff format --check src tests benchmarks examples docs/contact_sheet.py docs/build_site.py
	$(BIN)/ruff check src tests benchmarks examples docs/contact_sheet.py docs/build_site.py
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	$(BIN)/python -m pytest tests/repo tests/docs/test_site.py

# The pages as a site in build/site; open build/site/index.html, no server is needed. A broken link is an error.
docs: $(VENV)/.check
	$(BIN)/python docs/build_site.py build/site

# The library for arm64, and its C tests, run by an emulator: vector kernels against their scalar twins, parsers, geometry.
check-arm64: $(VENV)/.installed
	@command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64 >/dev/null || { \
	  echo "A compiler for arm64 or an emulator is missing. Debian/Ubuntu: apt-get install $(ARM64_PACKAGES)"; exit 1; }
	$(BIN)/cmake -S . -B build/arm64 -DSTOKER_TURBO=OFF -DSTOKER_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CROSSCOMPILING_EMULATOR='qemu-aarch64;-L;/usr/aarch64-linux-gnu'
	$(BIN)/cmake --build build/arm64 --parallel
	$(BIN)/ctest --test-dir build/arm64 --parallel 4 --output-on-failure

# The tests that need no framework, in an environment of their own: for every Python there is, also those that frameworks do not
# support yet: `make test-core PYTHON=python3.14t`.
CORE = build/core-$(shell $(PYTHON) -c 'import sys, sysconfig; print(sysconfig.get_python_version() + getattr(sys, "abiflags", ""))')
test-core:
	test -d $(CORE) || $(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python -m pip install --quiet cmake ninja "scikit-build-core>=0.10"
	$(CORE)/bin/python -m pip install --quiet --no-build-isolation --config-settings build-dir=$(CORE)/native '.[test-core]'
	$(CORE)/bin/python -m pytest --core -n auto --dist worksteal $(CORE_TESTS)
	cd benchmarks && ../$(CORE)/bin/python gil.py $(GIL_OPTIONS)

# A wheel for other machines, with libjpeg-turbo inside, built from the source distribution. Zig compiles for glibc 2.28, whatever this
# machine has. WHEEL_TARGET=aarch64-linux-gnu.2.28 and the like build for others; TURBO_SOURCE=FILE saves the download.
wheel: $(VENV)/.release
	$(BIN)/python -m tests.packaging.make_wheel $(WHEEL_TARGET) $(if $(TURBO_SOURCE),--turbo-source $(TURBO_SOURCE))

# The wheel of this machine: what is in it, and whether it works in a system without compiler (takes root and debootstrap).
check-wheel: $(VENV)/.check $(VENV)/.release
	STOKER_WHEEL=$$(echo dist/stoker-*-manylinux_*_$$(uname -m).whl) $(BIN)/python -m pytest tests/packaging
	$(BIN)/python tests/packaging/clean_root.py dist/stoker-*-manylinux_*_$$(uname -m).whl --torch '$(CHECK_TORCH)'

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run_all.py

# With libjpeg-turbo, where it is, and without.
sanitize: sanitize-AUTO sanitize-OFF

sanitize-%: $(VENV)/.installed
	$(BIN)/cmake -S . -B build/sanitize-$* -DSTOKER_TURBO=$* -DSTOKER_SANITIZE=ON -DSTOKER_TESTS=ON -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=$(CLANG)
	$(BIN)/cmake --build build/sanitize-$* --parallel
	$(BIN)/ctest --test-dir build/sanitize-$* --output-on-failure

# The kernels of the device with a thread of the system for each of theirs: places that two of them touch without a barrier. A minute.
races: $(VENV)/.installed
	$(BIN)/cmake -S . -B build/races -DSTOKER_RACES=ON -DSTOKER_TURBO=ON
	$(BIN)/cmake --build build/races --parallel --target test_races
	TSAN_OPTIONS=history_size=7:halt_on_error=1 build/races/test_races $(RACES)

# What it finds and what it leaves for the next run is in build/fuzz; native/fuzz/README.md tells what to do with it.
fuzz: $(VENV)/.installed
	@test -n "$(FUZZER)" || { echo "make fuzz needs clang, whose libFuzzer it uses. Debian/Ubuntu: apt-get install clang"; exit 1; }
	$(BIN)/cmake -S . -B build/fuzz -DSTOKER_FUZZ=ON -DSTOKER_TURBO=ON -DSTOKER_SANITIZE=ON -DCMAKE_C_COMPILER=$(FUZZER)
	$(BIN)/cmake --build build/fuzz --parallel --target fuzz_jpeg
	mkdir -p build/fuzz/found
	build/fuzz/fuzz_jpeg -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=20 -dict=native/fuzz/jpeg.dict \
	  -artifact_prefix=build/fuzz/ build/fuzz/found native/fuzz/corpus native/fuzz/regressions

# The scenarios of the fault lab, which `make test` plays a few times, as often as it takes to trust them: about half an hour.
faults: $(VENV)/.test
	$(BIN)/python -m pytest --faults -m faults --timeout 3600 -n auto --dist worksteal

# A million batches, in which nothing may grow. Then new random pipelines against a naive oracle, from a seed that is printed: for
# SOAK_SECONDS, or SOAK_COUNT of them.
soak: $(VENV)/.test
	$(BIN)/python -m tests.system.endurance --iterations $(SOAK_ITERATIONS)
	$(BIN)/python -m tests.system.random_pipelines $(if $(SOAK_COUNT),--count $(SOAK_COUNT),--seconds $(SOAK_SECONDS))

format: $(VENV)/.check
	$(BIN)/ruff format src tests benchmarks examples docs/contact_sheet.py docs/build_site.py
	$(BIN)/ruff check --fix src tests benchmarks examples docs/contact_sheet.py docs/build_site.py
	$(BIN)/clang-format -i $(C_FILES)

clean:
	rm -rf build dist $(VENV) src/stoker/kernel/*.so

# The package is installed in editable form: Python files are used from src/, the native library is built into the environment
# and built again when a C file changes.
$(VENV)/.installed: $(SOURCES)
	@command -v cc >/dev/null || command -v gcc >/dev/null || { \
	  echo "A C compiler is missing. Debian/Ubuntu: apt-get install gcc; Fedora: dnf install gcc; macOS: xcode-select --install"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed: make PYTHON=python3.11"; exit 1; }
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet cmake ninja "scikit-build-core>=0.10"
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[test]'
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[check,docs]'
	@touch $@

$(VENV)/.release: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[release]'
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[bench]'
	@touch $@
