#!/usr/bin/env bash
# Generates what is generated: deepcopy functions, applyconfigurations,
# clientset, listers and informers (k8s.io/code-generator) and the CRDs
# (controller-gen). Run it by `make generate`; hack/verify-codegen.sh checks that
# nothing is left to do.
set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
module=$(go list -m)
go mod download k8s.io/code-generator # or its folder has no name yet
codegen=$(go list -m -f '{{.Dir}}' k8s.io/code-generator)

# The generators are installed into a folder of this checkout, never into the
# user's GOBIN.
GOBIN=$(pwd)/bin/codegen
export GOBIN
# shellcheck source=/dev/null
source "${codegen}/kube_codegen.sh"

kube::codegen::gen_helpers \
	--boilerplate hack/boilerplate.go.txt \
	pkg/apis
kube::codegen::gen_client \
	--with-watch \
	--with-applyconfig \
	--output-dir pkg/generated \
	--output-pkg "${module}/pkg/generated" \
	--boilerplate hack/boilerplate.go.txt \
	pkg/apis
kube::codegen::gen_register \
	--boilerplate hack/boilerplate.go.txt \
	pkg/apis

echo "Generating CRDs"
mkdir -p artifacts/crds
(cd hack/tools && go build -o "${GOBIN}/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen)
"${GOBIN}/controller-gen" crd:generateEmbeddedObjectMeta=true \
	paths=./pkg/apis/... output:crd:dir=artifacts/crds
(cd hack/tools && go run ./trimcrd ../../artifacts/crds/*.yaml)
