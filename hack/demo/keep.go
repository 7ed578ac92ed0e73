package main

// What make run says once the pool is full, and the wait for Ctrl-C.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// keep fills the pool, says what to try, and returns when ctx ends: with an error if
// that is because the controller did.
func (s *stage) keep(ctx context.Context) error {
	if err := s.fill(ctx); err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	s.show(invitation(here, s.kubeconfig, s.controlPlane.Kubectl(), s.controller.log))
	<-ctx.Done()
	return context.Cause(ctx)
}

// invitation is the text that a person copies from.
func invitation(here, kubeconfig, kubectl, log string) string {
	if relative, err := filepath.Rel(here, kubectl); err == nil && !strings.HasPrefix(relative, "..") {
		kubectl = relative
	}
	return fmt.Sprintf(`It is yours. In another terminal:

  cd %[1]s
  export KUBECONFIG=%[2]s

  %[3]s get wp,pclaim
  %[3]s apply -f artifacts/examples/podclaim.yaml && %[3]s wait --for=condition=Bound podclaim/build-1
  %[3]s scale wp/%[4]s --replicas=3

The controller's log: %[5]s
Ctrl-C takes all of it down.`, here, kubeconfig, kubectl, poolName, log)
}
