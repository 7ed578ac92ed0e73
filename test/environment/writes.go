package environment

// What was written in a namespace, from the API server's audit log.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"warmpool.dev/controller/hack/controlplane"
)

// settledAfter is how long the controller must have written nothing to be at rest. It
// writes events behind its other writes, and the audit log comes behind them all.
const settledAfter = time.Second

// SettledWrites waits until the controller has written nothing for a second, and
// returns its writes in this namespace so far, oldest first.
func (n *Namespace) SettledWrites() []controlplane.Write {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), Timeout)
	defer cancel()
	ticker := time.NewTicker(settledAfter)
	defer ticker.Stop()
	writes := n.Writes()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			n.t.Fatalf("the controller still writes after %s:\n%s", Timeout, Table(writes))
		}
		before := len(writes)
		if writes = n.Writes(); len(writes) == before {
			return writes
		}
	}
}

// Writes are the controller's writes in this namespace so far, oldest first. The last
// few milliseconds may be missing. The whole log is read each time: don't poll it.
func (n *Namespace) Writes() []controlplane.Write {
	n.t.Helper()
	writes, err := n.env.ControlPlane.Writes(controlplane.Controller)
	if err != nil {
		n.t.Fatal(err)
	}
	return slices.DeleteFunc(writes, func(w controlplane.Write) bool { return w.Namespace != n.Name })
}

// Refused are those writes that the API server answered with an error.
func Refused(writes []controlplane.Write) []controlplane.Write {
	return slices.DeleteFunc(slices.Clone(writes), func(w controlplane.Write) bool { return w.Code < 400 })
}

// Table prints writes by kind and answer, a line each.
func Table(writes []controlplane.Write) string {
	counts := map[string]int{}
	for _, w := range writes {
		counts[fmt.Sprintf("%-28s %d", w.Kind(), w.Code)]++
	}
	var lines []string
	for line, n := range counts {
		lines = append(lines, fmt.Sprintf("%6d  %s", n, line))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[6:], b[6:]) })
	return strings.Join(lines, "\n")
}
