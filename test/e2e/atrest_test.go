package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"warmpool.dev/controller/hack/controlplane"
	"warmpool.dev/controller/test/environment"
)

// At rest the controller writes nothing but its lease, and that as often as it must.
func TestAtRestNothingIsWritten(t *testing.T) {
	const observed = 60 * time.Second
	ns := env.Namespace(t)
	ns.StartKubelet()
	lease := ns.GrantLease()
	ns.StartController("--leader-elect", "--leader-elect-namespace="+ns.Name).WaitLeading()
	story(ns)
	before := len(ns.SettledWrites())
	begun := time.Now()
	t.Parallel() // only now: the time runs while this test waits for its turn

	environment.For(t, time.Until(begun.Add(observed)), "the pool and its claims", func() error {
		if pods := len(ns.Pods()); pods != 8 {
			return fmt.Errorf("there are %d Pods, want 8", pods)
		}
		return nil
	})
	since := ns.Writes()[before:]
	elapsed := time.Since(begun).Round(time.Second)
	others := slices.DeleteFunc(slices.Clone(since), func(w controlplane.Write) bool {
		return w.Kind() == "update leases" && w.Name == lease
	})
	renewals := len(since) - len(others)
	t.Logf("in %s at rest: %d writes, and %d renewals of the lease", elapsed, len(others), renewals)
	if len(others) > 0 {
		t.Errorf("at rest the controller wrote\n%s", environment.Table(others))
	}
	if want := int(elapsed.Seconds()) / 2; renewals < want*2/3 || renewals > want+5 {
		t.Errorf("%d renewals of the lease in %s, want about %d", renewals, elapsed, want)
	}
}
