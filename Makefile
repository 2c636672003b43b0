# make build    the command and the preload library, in target/release
# make demo     installs what is missing, builds, measures the kernel and shunt side by side
# make applications  installs what is missing, builds, measures redis, memcached, nginx, haproxy, PostgreSQL, FTP, Python and Node.js
# make test     installs what is missing, builds, runs every test
# make test-unit, test-differential, test-programs, test-hosts, test-hot-path, test-doc  parts of it by themselves
# make test-fabric  of these, endpoints over libfabric alone: installs libfabric-dev, half a minute
# make soak     the tests that break things on purpose, for longer: KILLS=1000 RPC_KILLS=10000 BUFFER_KILLS=10000 INET_KILLS=10000 FORKS=10000 SECONDS=300; then all duets between two hosts; random sequences: MINUTES=60
# make test-openshmem  programs of other origin over libshunt_shmem: Open MPI's examples, shmem4py, openshmem-sys; some minutes
# make test-onc-peers  ONC clients and servers of Python's packages and of crates beside programs of libtirpc, plain, under shunt and collapsed: two minutes
# make bench-buffer-peers  large messages by shunt-buffers beside iceoryx2, UCX and kernel sockets: installs libucx-dev; minutes to build
# make bench-rpc-peers  calls of shunt-rpc beside those of iceoryx2, tarpc, Cap'n Proto and gRPC, and a store and a rate limiter moved from gRPC: installs capnproto, protobuf-compiler, libgrpc++-dev; minutes to build
# make soak-hostd  hostd killed under load as often as KILLS=1000 says: some minutes
# make conformance  strangers' own test suites on the kernel and under shunt: an hour and more; ONLY="redis cpython/test_ssl"
# make programs  servers and clients that people run, with load, reloads and kills, on the kernel and under shunt: some minutes
# make test-inet  every scenario with one side plain, its connections taken and given back at moments that a seed draws: SHUNT_DIFFERENTIAL_INET=2 ONLY="epoll"; ten minutes
# make miri     the tests of the TCP engine in an interpreter that knows undefined behaviour; needs the nightly toolchain with miri; two minutes
# make model    the model checker on rings, lock and bell, to the end: some minutes
# make fuzz     the targets in fuzz/, SECONDS=300 each; needs the nightly toolchain
# make test-dashboard  the dashboard for Grafana: Prometheus answers each of its queries, and a browser shows the answers; installs chromium; a minute
# make bench-watching  what shunt top, metrics and capture cost the programs that they watch: eight minutes
# make lint     formatting and clippy, warnings are errors; and no room of a crate takes more from rooms above it than before
# make deny, msrv, minimal  licences and sources of what is linked; the oldest compiler, and the oldest dependencies, that are promised
# make deb, test-deb  Debian packages in target/deb; installs, upgrades under a living program and removes them in a directory of their own
# make test-podman  two containers of podman's, and the compose file of docs/CONTAINERS.md: installs podman and podman-compose; a minute
# make test-docker  the same with a Docker daemon of its own: installs docker.io and docker-compose
# make install  PREFIX=/usr/local DESTDIR=

PREFIX ?= /usr/local
BUILT := target/release

KILLS ?= 1000
RPC_KILLS ?= 10000
BUFFER_KILLS ?= 10000
INET_KILLS ?= 10000
FORKS ?= 10000
SECONDS ?= 300
MINUTES ?= 60

.PHONY: test-dashboard bench-watching all build demo applications test test-unit test-differential test-programs test-hosts test-inet test-hot-path test-doc deny msrv minimal test-fabric test-openshmem test-onc-peers bench-rpc-peers bench-buffer-peers conformance programs soak soak-hostd fuzz model miri lint clean install deb test-deb test-podman test-docker uninstall

all: build

build:
	scripts/prepare build
	scripts/build

demo:
	scripts/prepare demo
	scripts/build
	$(BUILT)/shunt bench demo

applications:
	scripts/prepare applications
	scripts/build
	$(BUILT)/shunt bench applications

test:
	scripts/prepare test
	scripts/build
	scripts/test

CARGO_TEST := cargo test --release --target-dir target
NAMED = $(patsubst crates/testkit/tests/%.rs,--test %,$(wildcard crates/testkit/tests/$(1)*.rs))

# Tests beside the code: no other process, half a minute once it is built.
test-unit:
	$(CARGO_TEST) --workspace --lib --bins --exclude shunt-differential --exclude shunt-testkit

# Each scenario on the kernel and under shunt: eight minutes; ONLY="epoll poll" for some.
test-differential:
	scripts/build
	cargo run --release --target-dir target -p shunt-differential -- compare $(ONLY)

# Near and then far with an agent that takes connections, the other plain; another SHUNT_DIFFERENTIAL_INET gives back at other moments.
test-inet:
	scripts/build
	cargo run --release --target-dir target -p shunt-differential -- compare --across hosts-inet hosts-inet-far $(ONLY)

test-programs:
	scripts/prepare test
	scripts/build
	$(CARGO_TEST) -p shunt-testkit $(call NAMED,real_) $(call NAMED,beside_)

test-hosts:
	scripts/prepare test
	scripts/build
	$(CARGO_TEST) -p shunt-testkit $(call NAMED,hosts_)

test-hot-path:
	scripts/build
	scripts/check-hot-path

# In the tests' profile, whose macros and build scripts are there already.
test-doc:
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --release --workspace --no-deps --document-private-items --target-dir target

test-openshmem:
	scripts/prepare openshmem
	scripts/build
	scripts/openshmem-programs

test-onc-peers:
	scripts/prepare onc-peers
	scripts/build
	scripts/onc-peers

# Licences and sources of what is linked; needs cargo-deny (cargo install --locked cargo-deny).
deny:
	cargo deny check licenses bans sources

# The oldest compiler that Cargo.toml names; needs that toolchain (rustup toolchain install).
MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
msrv:
	cargo +$(MSRV) check --workspace --all-targets --target-dir target/msrv
	cargo +$(MSRV) check --release --manifest-path preload/Cargo.toml --target-dir target/msrv

# The oldest version of each dependency that a Cargo.toml names; needs the nightly toolchain, whose cargo alone can choose them. In a copy of
# what is committed or not yet, so that Cargo.lock stays; dependencies of dependencies are the newest that fit.
MINIMAL := target/minimal
minimal:
	rm -rf $(MINIMAL)/tree
	mkdir -p $(MINIMAL)/tree
	git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null | tar -c --files-from=- | tar -x -C $(MINIMAL)/tree
	cd $(MINIMAL)/tree && cargo +nightly update --quiet -Z direct-minimal-versions
	cd $(MINIMAL)/tree && cargo check --workspace --all-targets --target-dir $(abspath $(MINIMAL))/build

test-fabric:
	scripts/prepare fabric
	cargo test --release --target-dir target -p shunt-fabric --features libfabric
	cargo test --release --target-dir target -p shunt-rpc --features fabric --test model fabric

test-dashboard:
	scripts/prepare dashboard
	scripts/build
	scripts/dashboard

bench-watching:
	scripts/build
	scripts/watching --mode trips
	scripts/watching --mode stream

# Outside the workspace: dependencies that nothing else here has.
bench-rpc-peers:
	scripts/prepare rpc-peers
	cd peers/rpc && cargo build --release --locked --target-dir $(abspath target)/peers-rpc
	target/peers-rpc/release/rpc-peers
	scripts/kv-programs
	target/peers-rpc/release/kv target/kv/kv-rust target/kv/kv-c target/kv/kv-grpc
	target/peers-rpc/release/throttle target/kv/throttle-c target/kv/throttle-grpc

bench-buffer-peers:
	scripts/prepare buffer-peers
	cd peers/buffers && cargo run --release --locked --target-dir $(abspath target)/peers-buffers

conformance:
	scripts/prepare build
	scripts/build
	scripts/conformance $(ONLY); status=$$?; scripts/conformance --document; exit $$status

programs:
	scripts/prepare build
	scripts/build
	scripts/conformance programs large; status=$$?; scripts/conformance --document; exit $$status

soak:
	scripts/prepare test
	scripts/build
	SHUNT_TEST_KILLS=$(KILLS) SHUNT_TEST_FORKS=$(FORKS) SHUNT_TEST_SCRIBBLE_SECONDS=$(SECONDS) \
	    cargo test --release --target-dir target -p shunt-testkit --test crash_kill --test crash_forks --test crash_scribble
	SHUNT_TEST_KILLS=$(KILLS) cargo test --release --target-dir target -p shunt-testkit --test spmd_ends a_killed_rank_ends_the_job -- --nocapture
	SHUNT_TEST_KILLS=$(KILLS) cargo test --release --target-dir target -p shunt-testkit --test near killed
	SHUNT_TEST_KILLS=$(INET_KILLS) cargo test --release --target-dir target -p shunt-testkit --test plain_peers killed_at_random_moments -- --nocapture
	KILLS=$(BUFFER_KILLS) cargo test --release --target-dir target -p shunt-buffers --test deaths_at_random -- --nocapture
	KILLS=$(RPC_KILLS) cargo test --release --target-dir target -p shunt-rpc-examples --test deaths -- --nocapture
	cargo run --release --target-dir target -p shunt-differential -- compare --across
	cargo run --release --target-dir target -p shunt-differential -- compare --trapped
	cargo run --release --target-dir target -p shunt-differential -- soak $(MINUTES)

soak-hostd:
	scripts/prepare test
	scripts/build
	SHUNT_TEST_KILLS=$(KILLS) cargo test --release --target-dir target -p shunt-testkit --test near_hostd killed_at_any_moment -- --nocapture

fuzz:
	scripts/fuzz $(SECONDS)

model:
	scripts/model-check

miri:
	scripts/miri

lint:
	cargo fmt --all --check
	cargo fmt --check --manifest-path preload/Cargo.toml
	cargo clippy --workspace --all-targets --target-dir target -- -D warnings
	cargo clippy --release --manifest-path preload/Cargo.toml --target-dir target/preload -- -D warnings
	cargo run --quiet --target-dir target -p shunt-xtask -- layers --check

clean:
	cargo clean --target-dir target

COMPLETIONS := share/bash-completion/completions/shunt share/zsh/site-functions/_shunt share/fish/vendor_completions.d/shunt.fish
SHELL_OF = $(firstword $(subst /, ,$(patsubst share/bash-completion%,bash%,$(patsubst share/zsh%,zsh%,$(patsubst share/fish%,fish%,$(1))))))

# Debian packages of what is built, in target/deb; and a try of them in a directory as root, with what lintian says where that is installed.
deb:
	scripts/prepare deb
	scripts/build
	scripts/deb

test-deb: deb
	scripts/deb-try

# Containers as docs/CONTAINERS.md has them.
test-podman:
	scripts/prepare podman
	scripts/build
	scripts/podman

test-docker:
	scripts/prepare docker
	scripts/build
	scripts/docker

# The C libraries beside that of calls: name and what its pkg-config file says of it.
C_LIBRARIES := endpoint am buffers
DESCRIPTION_endpoint := U-Net endpoints: messages between processes and hosts
DESCRIPTION_am := Active messages over shared memory, UDP and AF_XDP
DESCRIPTION_buffers := Large messages by reference

# Whoever runs `make install` as root has usually built as somebody else, so nothing is built here.
install:
	@test -f $(BUILT)/shunt -a -f $(BUILT)/libshunt.so || { echo "nothing to install yet; run: make build" >&2; exit 1; }
	install -D -m 755 $(BUILT)/shunt $(DESTDIR)$(PREFIX)/bin/shunt
	install -D -m 644 $(BUILT)/libshunt.so $(DESTDIR)$(PREFIX)/lib/shunt/libshunt.so
	install -D -m 644 $(BUILT)/libshunt_tirpc.so $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_tirpc.so
	install -D -m 644 $(BUILT)/libshunt_shmem.so $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_shmem.so
	install -D -m 644 $(BUILT)/libshunt_shmem.a $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_shmem.a
	install -D -m 755 $(BUILT)/shunt-shmemcc $(DESTDIR)$(PREFIX)/bin/shunt-shmemcc
	ln -sf shunt-shmemcc $(DESTDIR)$(PREFIX)/bin/shunt-shmemc++
	cd $(BUILT)/include && find . -name '*.h' -exec install -D -m 644 {} $(abspath $(DESTDIR)$(PREFIX))/include/shunt/{} \;
	mkdir -p $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e "s|@VERSION@|$$($(BUILT)/shunt --version | cut -d' ' -f2)|" crates/shmem/tools/shunt-shmem.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/shunt-shmem.pc
	sed -e 's|@PREFIX@|$(PREFIX)|' -e "s|@VERSION@|$$($(BUILT)/shunt --version | cut -d' ' -f2)|" crates/tirpc/tools/shunt-tirpc.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/shunt-tirpc.pc
	mkdir -p $(DESTDIR)$(PREFIX)/share/man/man1 $(addprefix $(DESTDIR)$(PREFIX)/,$(dir $(COMPLETIONS))) $(DESTDIR)$(PREFIX)/lib/systemd/system
	$(BUILT)/shunt man --all $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 docs/man/shunt-shmemcc.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	ln -sf shunt-shmemcc.1 $(DESTDIR)$(PREFIX)/share/man/man1/shunt-shmemc++.1
	mkdir -p $(DESTDIR)$(PREFIX)/share/man/man3
	for page in docs/man/*.3; do install -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man3/ && \
	    for name in $$(sed -n 's/^\.\\" functions: //p' $$page); do \
	        printf '.so man3/%s\n' $${page##*/} > $(DESTDIR)$(PREFIX)/share/man/man3/$$name.3; done; done
	$(foreach file,$(COMPLETIONS),$(BUILT)/shunt completions $(call SHELL_OF,$(file)) > $(DESTDIR)$(PREFIX)/$(file) &&) true
	sed -e 's|@PREFIX@|$(PREFIX)|' packaging/shunt-agent@.service.in > $(DESTDIR)$(PREFIX)/lib/systemd/system/shunt-agent@.service
	sed -e 's|@PREFIX@|$(PREFIX)|' packaging/shunt-hostd.service.in > $(DESTDIR)$(PREFIX)/lib/systemd/system/shunt-hostd.service
	install -D -m 644 packaging/grafana/shunt.json $(DESTDIR)$(PREFIX)/share/shunt/grafana/shunt.json
	install -D -m 755 $(BUILT)/shunt-rpcgen $(DESTDIR)$(PREFIX)/bin/shunt-rpcgen
	install -D -m 644 $(BUILT)/libshunt_rpc_c.a $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_rpc_c.a
	install -D -m 644 $(BUILT)/libshunt_rpc_c.so $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_rpc_c.so
	install -D -m 644 crates/rpc-c/include/shunt_rpc.h $(DESTDIR)$(PREFIX)/include/shunt/shunt_rpc.h
	$(foreach name,$(C_LIBRARIES),for kind in a so; do install -D -m 644 $(BUILT)/libshunt_$(name)_c.$$kind $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_$(name)_c.$$kind || exit 1; done &&) true
	$(foreach name,$(C_LIBRARIES),sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@NAME@|$(name)|' -e 's|@DESCRIPTION@|$(DESCRIPTION_$(name))|' -e "s|@VERSION@|$$($(BUILT)/shunt --version | cut -d' ' -f2)|" packaging/c-library.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/shunt-$(name).pc &&) true
	install -D -m 644 crates/endpoint-c/include/shunt/endpoint.h $(DESTDIR)$(PREFIX)/include/shunt/shunt/endpoint.h
	install -D -m 644 crates/am-c/include/shunt_am.h $(DESTDIR)$(PREFIX)/include/shunt/shunt_am.h
	install -m 644 crates/buffers-c/include/shunt_buffers.h crates/buffers-c/include/shunt_network.h crates/buffers-c/include/shunt_socket.h $(DESTDIR)$(PREFIX)/include/shunt/
	install -D -m 644 crates/rpc-c/cmake/shunt-rpc-config.cmake $(DESTDIR)$(PREFIX)/lib/cmake/shunt-rpc/shunt-rpc-config.cmake
	sed -e 's|@PREFIX@|$(PREFIX)|' -e "s|@VERSION@|$$($(BUILT)/shunt --version | cut -d' ' -f2)|" crates/rpc-c/tools/shunt-rpc.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/shunt-rpc.pc

uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/share/shunt
	rm -rf $(DESTDIR)$(PREFIX)/include/shunt $(DESTDIR)$(PREFIX)/lib/cmake/shunt-rpc
	rm -f $(DESTDIR)$(PREFIX)/bin/shunt-rpcgen $(DESTDIR)$(PREFIX)/lib/pkgconfig/shunt-rpc.pc
	rm -f $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_rpc_c.a $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_rpc_c.so
	rm -f $(DESTDIR)$(PREFIX)/bin/shunt-shmemcc $(DESTDIR)$(PREFIX)/bin/shunt-shmemc++ $(DESTDIR)$(PREFIX)/lib/pkgconfig/shunt-shmem.pc
	rm -f $(foreach name,$(C_LIBRARIES),$(addprefix $(DESTDIR)$(PREFIX)/lib/,shunt/libshunt_$(name)_c.a shunt/libshunt_$(name)_c.so pkgconfig/shunt-$(name).pc))
	rm -f $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_tirpc.so $(DESTDIR)$(PREFIX)/lib/pkgconfig/shunt-tirpc.pc
	rm -f $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_shmem.so $(DESTDIR)$(PREFIX)/lib/shunt/libshunt_shmem.a
	rm -f $(DESTDIR)$(PREFIX)/bin/shunt $(DESTDIR)$(PREFIX)/lib/shunt/libshunt.so
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/shunt.1 $(DESTDIR)$(PREFIX)/share/man/man1/shunt-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/man/man3/shunt_*.3
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(COMPLETIONS)) $(DESTDIR)$(PREFIX)/lib/systemd/system/shunt-agent@.service $(DESTDIR)$(PREFIX)/lib/systemd/system/shunt-hostd.service
