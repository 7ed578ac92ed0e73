package main

import (
	"strings"
	"testing"
)

func TestInvitationCanBeCopiedAsItIs(t *testing.T) {
	got := invitation("/src/warmpool", "/tmp/run/admin.kubeconfig", "/src/warmpool/bin/controlplane/kubectl", "/tmp/run/controller.log")
	want := `It is yours. In another terminal:

  cd /src/warmpool
  export KUBECONFIG=/tmp/run/admin.kubeconfig

  bin/controlplane/kubectl get wp,pclaim
  bin/controlplane/kubectl apply -f artifacts/examples/podclaim.yaml && bin/controlplane/kubectl wait --for=condition=Bound podclaim/build-1
  bin/controlplane/kubectl scale wp/runners --replicas=3

The controller's log: /tmp/run/controller.log
Ctrl-C takes all of it down.`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestKubectlElsewhereIsNamedInFull(t *testing.T) {
	got := invitation("/src/warmpool", "/tmp/admin.kubeconfig", "/opt/kubectl", "/tmp/controller.log")
	if !strings.Contains(got, "\n  /opt/kubectl get wp,pclaim\n") {
		t.Errorf("got:\n%s\nwant /opt/kubectl in it", got)
	}
}
