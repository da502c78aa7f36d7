# Two commands do all set-up: `make demo` and `make test`. The rest is for those who change Stoker.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/include/*.h native/src/*.c native/src/*.h native/src/simd/*.c native/src/simd/*.h)
C_FILES := $(wildcard native/include/*.h native/src/*.c native/src/*.h native/src/simd/*.c native/src/simd/*.h native/test/*.c native/test/*.h native/fuzz/*.c)
CLANG  := $(shell command -v clang || command -v clang-14 || command -v gcc)
FUZZER := $(shell for c in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do command -v $$c && break; done)
ARM64_PACKAGES := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
FUZZ_SECONDS ?= 1800
SOAK_SECONDS ?= 600
SOAK_ITERATIONS ?= 1000000

.PHONY: demo test check check-arm64 bench sanitize fuzz faults soak format clean

demo: $(VENV)/.installed
	$(BIN)/stoker demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal

check: $(VENV)/.check
	$(BIN)/ruff format --check src tests benchmarks examples docs/contact_sheet.py
	$(BIN)/ruff check src tests benchmarks examples docs/contact_sheet.py
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	$(BIN)/python -m pytest tests/repo

# The library for arm64, and its C tests, run by an emulator: vector kernels against their scalar twins, parsers, geometry.
check-arm64: $(VENV)/.installed
	@command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64 >/dev/null || { \
	  echo "A compiler for arm64 or an emulator is missing. Debian/Ubuntu: apt-get install $(ARM64_PACKAGES)"; exit 1; }
	$(BIN)/cmake -S . -B build/arm64 -DSTOKER_TURBO=OFF -DSTOKER_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CROSSCOMPILING_EMULATOR='qemu-aarch64;-L;/usr/aarch64-linux-gnu'
	$(BIN)/cmake --build build/arm64 --parallel
	$(BIN)/ctest --test-dir build/arm64 --parallel 4 --output-on-failure

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run_all.py

# With libjpeg-turbo, where it is, and without.
sanitize: sanitize-AUTO sanitize-OFF

sanitize-%: $(VENV)/.installed
	$(BIN)/cmake -S . -B build/sanitize-$* -DSTOKER_TURBO=$* -DSTOKER_SANITIZE=ON -DSTOKER_TESTS=ON -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=$(CLANG)
	$(BIN)/cmake --build build/sanitize-$* --parallel
	$(BIN)/ctest --test-dir build/sanitize-$* --output-on-failure

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
	$(BIN)/ruff check --fix src tests benchmarks examples docs/contact_sheet.py
	$(BIN)/ruff format src tests benchmarks examples docs/contact_sheet.py
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
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[check]'
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[bench]'
	@touch $@
