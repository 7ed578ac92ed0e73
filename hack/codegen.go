//go:build codegen

// Package codegen keeps k8s.io/code-generator, which hack/update-codegen.sh runs,
// among the requirements of this module.
package codegen

import _ "k8s.io/code-generator"
