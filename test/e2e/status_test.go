package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/environment"
)

// Every Pod that becomes Ready is a new count. They are told of together, and a large pool
// that is full is as quiet as a small one.
func TestTheStatusOfALargePoolDoesNotStorm(t *testing.T) {
	const (
		size     = 500
		observed = 60 * time.Second
		// most is what filling may cost. On a machine so busy that it takes longer,
		// a second may cost one more.
		most = 15
	)
	ns := env.Namespace(t)
	ns.StartController()
	begun := time.Now()
	ns.CreatePool(environment.Pool("runners", size))
	ns.WaitPods(size)
	ns.StartKubelet() // only now, so that they get ready one after the other
	ns.WaitPool("runners", size, 0)
	took := time.Since(begun)

	writes := ns.SettledWrites()
	filling := len(slices.DeleteFunc(slices.Clone(writes), func(w controlplane.Write) bool { return w.Kind() != "update warmpools/status" }))
	t.Logf("%d Pods were ready after %s, the status was written %d times", size, took.Round(time.Millisecond), filling)
	if filling > max(most, int(took.Seconds())+3) {
		t.Errorf("filling took %d writes of the status, want at most %d:\n%s", filling, most, environment.Table(writes))
	}
	if refused := environment.Refused(writes); len(refused) > 0 {
		t.Errorf("the API server refused\n%s", environment.Table(refused))
	}

	rests := time.Now()
	t.Parallel() // only now: the time runs while this test waits for its turn
	environment.For(t, time.Until(rests.Add(observed)), "the pool", func() error {
		if ready := ns.Pool("runners").Status.ReadyReplicas; ready != size {
			return fmt.Errorf("%d Pods are ready, want %d", ready, size)
		}
		return nil
	})
	if since := ns.Writes()[len(writes):]; len(since) > 0 {
		t.Errorf("in %s at rest the controller wrote\n%s", time.Since(rests).Round(time.Second), environment.Table(since))
	}
}
