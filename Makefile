# A thin layer over cargo: what a target runs is all there is to it.
.DEFAULT_GOAL := help
.PHONY: help demo demo-recovery test soak bench lint

# How many times more random cases `make soak` runs than `make test`.
SOAK ?= 20

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## see it work: a fault, the isolation and the release, on an embedded cluster
	cargo run --locked --quiet -- demo

# What it needs must be there, as in CI.
demo-recovery: export CI = true
demo-recovery: ## see a training run survive a GPU's loss, on the real programs of Kubernetes, Prometheus and Alertmanager
	cargo test --locked --quiet --test recovery -- --nocapture

test: ## all tests; needs nothing but Rust and a C compiler
	cargo test --locked

# Optimised, so that many cases take minutes; with the checks of a debug build, which are what the cases are to trip.
soak: export GPU_QUARANTINE_SOAK = $(SOAK)
soak: export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS = true
soak: export CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS = true
soak: export CARGO_PROFILE_RELEASE_LTO = off
soak: export CARGO_PROFILE_RELEASE_CODEGEN_UNITS = 16
soak: ## the same tests with SOAK (20) times the random cases
	cargo test --locked --release

bench: ## measure, also on a real API server (KUBEBUILDER_ASSETS); GPU_QUARANTINE_BENCH_LARGE=1 with 15,000 nodes
	cargo bench --locked --bench pure
	cargo bench --locked --bench cluster

lint: ## formatting, clippy, dependencies (cargo-deny 0.20), alerting rules (promtool), the route (amtool)
	cargo fmt --check
	cargo clippy --all-targets --locked -- -D warnings
	cargo deny --locked check -D unmatched-skip -D unnecessary-skip bans licenses sources
	.ci/rules
	.ci/routes
