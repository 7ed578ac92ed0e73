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
	t.Parallel()
	const observed = 60 * time.Second
	ns := env.Namespace(t)
	ns.StartKubelet()
	lease := ns.GrantLease()
	ns.StartController("--leader-elect", "--leader-elect-namespace="+ns.Name).WaitLeading()
	story(ns)
	before := len(ns.SettledWrites())

	environment.For(t, observed, "the pool and its claims", func() error {
		if pods := len(ns.Pods()); pods != 8 {
			return fmt.Errorf("there are %d Pods, want 8", pods)
		}
		return nil
	})
	since := ns.Writes()[before:]
	others := slices.DeleteFunc(slices.Clone(since), func(w controlplane.Write) bool {
		return w.Kind() == "update leases" && w.Name == lease
	})
	renewals := len(since) - len(others)
	t.Logf("in %s at rest: %d writes, and %d renewals of the lease", observed, len(others), renewals)
	if len(others) > 0 {
		t.Errorf("at rest the controller wrote\n%s", environment.Table(others))
	}
	if renewals < 20 || renewals > 40 {
		t.Errorf("%d renewals of the lease in %s, want about 30", renewals, observed)
	}
}
