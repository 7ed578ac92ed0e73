# `make help` lists the targets. Everything is built from Go modules; nothing else is
# downloaded, and nothing is installed outside this checkout.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The modules of this repository that have Go code of their own.
MODULES := . hack/controlplane hack/demo hack/tools test

# The race detector needs a C compiler; without one the tests run, and say so.
CC ?= cc
RACE := $(if $(shell command -v $(CC) 2>/dev/null),-race,)
TESTFLAGS ?= -count=1 -timeout=20m

##@ Use

# DEMOFLAGS=-rest=60s watches in the end that the controller writes nothing at rest.
.PHONY: demo
demo: build bin/warmpool-demo ## Run the main job on a local control plane: a pool fills, claims are bound, the pool refills
	@bin/warmpool-demo $(DEMOFLAGS)

.PHONY: run
run: build bin/warmpool-demo ## The same, left running with three commands to try; Ctrl-C takes it down
	@bin/warmpool-demo -keep

# A binary and not go run, which would leave it running when it is itself terminated;
# with the flags of build, whose compiled packages it then shares.
.PHONY: bin/warmpool-demo
bin/warmpool-demo:
	@cd hack/demo && CGO_ENABLED=0 go build -trimpath -o ../../bin/warmpool-demo .

.PHONY: build
build: ## Build bin/warmpool-controller
	@CGO_ENABLED=0 go build -trimpath -o bin/warmpool-controller .

##@ Develop

.PHONY: test
test: control-plane ## Run all tests: unit tests, and those against the real API server
	@$(if $(RACE),,echo "make test: no C compiler ($(CC)) found, so the race detector is off" >&2)
	go test $(RACE) $(TESTFLAGS) ./...
	cd hack/tools && go test $(RACE) $(TESTFLAGS) ./...
	cd hack/controlplane && go test $(RACE) $(TESTFLAGS) ./...
	cd hack/demo && go test $(RACE) $(TESTFLAGS) ./...
	cd test && go test $(RACE) $(TESTFLAGS) $$(go list ./... | grep -v /race$$)
	@$(MAKE) --no-print-directory race

# Where go test is given no package it shows what is printed at once.
.PHONY: race
race: control-plane ## Run the race suite alone: faults at every write and at every event (some minutes)
	cd test/race && go test $(RACE) $(TESTFLAGS) -timeout=45m

# RACE_SEED=17 runs one seed again: cd test && RACE_SEED=17 go test ./race -run '^TestRandom$' -v
DURATION ?= 30m
.PHONY: race-soak
race-soak: control-plane ## Run new random seeds of the race suite for DURATION=30m, or until one fails
	cd test && RACE_SOAK=$(DURATION) go test $(RACE) -count=1 -timeout=0 -v -run='^TestRandom$$' ./race

# In microseconds and alone on the machine, or the figures are another's.
# BENCHFLAGS='-count=6' gives benchstat enough to compare.
.PHONY: bench
bench: control-plane ## Measure what the guards cost, and how soon a parked key is back, at a real API server
	go test -run='^$$' -bench=. -benchmem $(BENCHFLAGS) ./pkg/freshness
	cd test && go test -run='^$$' -bench=. -benchtime=30x -timeout=20m $(BENCHFLAGS) ./bench

# LABFLAGS=-lab.times=1 tells each story once instead of three times.
.PHONY: lab
lab: control-plane ## Take each guard out in turn, and show what goes wrong: writes docs/lab.md (some minutes)
	cd test/lab && go test -count=1 -timeout=20m -run='^TestLab$$' -parallel=4 -lab.write $(LABFLAGS)

.PHONY: control-plane
control-plane: ## Build etcd, the API server and the rest of the local control plane (minutes the first time)
	@cd hack/controlplane && go run ./cmd/controlplane build

.PHONY: generate
generate: ## Generate clients, deep copies and CRDs from pkg/apis
	bash hack/update-codegen.sh

.PHONY: verify
verify: ## Check formatting, vet, lint, go.mod files and that generated code is up to date
	@unformatted=$$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w on: $$unformatted" >&2; exit 1; fi
	@for module in $(MODULES); do \
		echo "go vet, go mod tidy: $$module"; \
		(cd $$module && go vet ./... && go mod tidy -diff); \
	done
	bash hack/verify-codegen.sh
	@$(MAKE) --no-print-directory lint

.PHONY: lint
lint: bin/tools/golangci-lint ## Run golangci-lint
	@for module in $(MODULES); do \
		echo "golangci-lint: $$module"; \
		(cd $$module && $(CURDIR)/bin/tools/golangci-lint run --config $(CURDIR)/.golangci.yml ./...); \
	done

bin/tools/golangci-lint: hack/lint/go.mod hack/lint/go.sum
	@echo "Building golangci-lint; the first time this takes some minutes"
	@cd hack/lint && go build -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*##/ {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
