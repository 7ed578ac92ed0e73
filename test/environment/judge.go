package environment

// The history of a namespace, and what is held against it.

import (
	"context"
	"time"

	"warmpool.dev/controller/test/history"
)

// lag is how old the controller's knowledge of what others write may be for no fault
// of its own, where nothing holds it back but a busy machine.
const lag = 3 * time.Second

// Judge records what happens in the namespace from now on. When the test ends, and
// those have stopped that were started after this call, the history is judged: at each
// revision, and whether everything is where it belongs in the end. A test that doesn't
// leave it so has failed.
func (n *Namespace) Judge() {
	n.t.Helper()
	recorder, err := history.Record(n.t.Context(), history.Recording{
		Endpoints:  []string{n.env.ControlPlane.EtcdURL},
		Namespaces: []string{n.Name},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		defer recorder.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), Timeout)
		defer cancel()
		h, err := recorder.History(ctx)
		if err != nil {
			n.t.Error(err)
			return
		}
		for _, violation := range history.Judge(h, history.Terms{Lag: lag, GarbageCollector: true}) {
			n.t.Error(violation)
		}
		for _, violation := range history.I6(h) {
			n.t.Error(violation)
		}
		n.t.Logf("judged %d versions in namespace %s", len(h.Versions), n.Name)
	})
}
