package e2e

import (
	"fmt"
	"testing"

	"warmpool.dev/controller/test/environment"
)

// The controller dies right after a write of its choice, while it fills the pool and
// hands Pods out. What it had under way is taken up by the next one, from the state at
// the API server alone.
func TestTheControllerMayCrashAtAnyTime(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Judge()
	ns.StartKubelet()
	ns.CreatePool(environment.Pool("runners", 10))
	var claims []string
	for round, crash := range []struct {
		text string
		n    int
	}{
		{`"Created"`, 1},
		{`"Created"`, 4},
		{`"Handed out"`, 1},
		{`"Handed out"`, 3},
		{`"Created"`, 2},
		{`"Handed out"`, 5},
		{`"Handed out"`, 2},
	} {
		controller := ns.LaunchController()
		claims = append(claims, createClaims(t, ns, fmt.Sprintf("build-%d", round), 6)...)
		controller.KillAt(crash.text, crash.n)
	}
	ns.StartController()
	ns.WaitBound(claims...)
	ns.WaitPool("runners", 10, int32(len(claims)))
	ns.WaitPods(10 + len(claims))
	onePodEach(t, ns)
}
