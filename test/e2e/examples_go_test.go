package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"warmpool.dev/controller/pkg/claim"
	"warmpool.dev/controller/pkg/generated/clientset/versioned"
	"warmpool.dev/controller/test/environment"
)

// build is what the README of the examples shows.
func build(ctx context.Context, clientset versioned.Interface, namespace string) (err error) {
	pod, err := claim.New(clientset, namespace).Acquire(ctx, claim.Options{Pool: "runners", Lifetime: 30 * time.Minute})
	if err != nil {
		return err
	}
	// The claim goes also when ctx has ended meanwhile.
	defer func() { err = errors.Join(err, pod.Release(context.WithoutCancel(ctx))) }()
	return run(ctx, pod.PodIPs[0])
}

// errRun is what run returns, so that it is seen that it was called.
var errRun = errors.New("the Pod was used")

func run(_ context.Context, ip string) error {
	if ip != "10.0.0.1" { // the kubelet's
		return errors.New("the Pod has another address: " + ip)
	}
	return errRun
}

// The Go that the README shows is what compiles and works here.
func TestTheGoOfTheExamples(t *testing.T) {
	t.Parallel()
	this := readRepository(t, "test", "e2e", "examples_go_test.go")
	shown := blocks(t, "go")
	if len(shown) != 1 || !strings.Contains(this, "\n"+shown[0]) {
		t.Errorf("the README of the examples shows other Go than what is tested here:\n%s", strings.Join(shown, "\n"))
	}
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()
	ns.CreatePool(environment.Pool("runners", 1))
	if err := build(t.Context(), env.Warmpool, ns.Name); !errors.Is(err, errRun) {
		t.Fatal(err)
	}
	ns.WaitPool("runners", 1, 0)
	if claims := ns.Claims(); len(claims) > 0 {
		t.Errorf("claims are left behind: %v", claims)
	}
}
