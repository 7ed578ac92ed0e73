#!/usr/bin/env bash
# Fails when the generated code or the CRDs differ from what hack/update-codegen.sh
# makes of the types now. Works on a copy, so a failing check changes nothing.
set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
copy=$(mktemp -d)
trap 'rm -rf "${copy}"' EXIT

generated=(pkg/apis pkg/generated artifacts/crds)
# What git tracks, and what it would; a file that was deleted is listed and not there.
git ls-files --cached --others --exclude-standard -- go.mod go.sum hack pkg artifacts |
	while read -r file; do if [ -f "${file}" ]; then echo "${file}"; fi; done |
	tar -cf - -T - | tar -xf - -C "${copy}"
(cd "${copy}" && git init --quiet . && bash hack/update-codegen.sh >/dev/null)

status=0
for path in "${generated[@]}"; do
	diff -Naur "${path}" "${copy}/${path}" || status=1
done
if [ "${status}" -ne 0 ]; then
	echo "generated files are out of date: run 'make generate' and commit the result" >&2
fi
exit "${status}"
