package race

import (
	"strings"
	"testing"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// In one telling something goes wrong at a few points, far apart, so that the trouble at
// one is over before the next.
const (
	writesPerTelling = 3
	eventsPerTelling = 2
)

// groups deals points out to tellings. Of three for each the first telling has the first
// point, the one a third further and the one two thirds further.
func groups(points []point, perTelling int) [][]point {
	n := (len(points) + perTelling - 1) / perTelling
	all := make([][]point, n)
	for i, p := range points {
		all[i%n] = append(all[i%n], p)
	}
	return all
}

func nameOf(points []point) string {
	var names []string
	for _, p := range points {
		names = append(names, p.String())
	}
	return strings.Join(names, "+")
}

// everyWrite tells the story as often as it takes for something to go wrong at each write
// of the reference run once.
func everyWrite(t *testing.T, mode string, terms func([]point) history.Terms, goWrong func(*run, point) *mishap) {
	t.Helper()
	t.Parallel()
	everyPoint(t, mode, groups(writesIn(reference(t)), writesPerTelling), terms, goWrong)
}

// everyPoint tells the story once for each group of points, at which something goes wrong.
func everyPoint(t *testing.T, mode string, groups [][]point, terms func([]point) history.Terms, goWrong func(*run, point) *mishap) {
	t.Helper()
	for _, group := range groups {
		t.Run(nameOf(group), func(t *testing.T) {
			t.Parallel()
			r := newRun(t, env, mode)
			for _, p := range group {
				r.trouble = append(r.trouble, goWrong(r, p))
			}
			r.launch()
			r.tell(story())
			r.finish(terms(group))
		})
	}
}

// strict are the terms where nothing is forgiven.
func strict([]point) history.Terms { return history.Terms{} }

// P1 in the plan: the process is killed when the request has left it and has not reached
// the API server, and started again. Whatever was under way besides is done.
func TestTheControllerDiesBeforeEveryWrite(t *testing.T) {
	everyWrite(t, "crash before a write", strict, func(r *run, p point) *mishap { return diesBefore(r, p)[0] })
}

// P1: the process is killed when the write has happened and before it hears of it.
func TestTheControllerDiesAfterEveryWrite(t *testing.T) {
	everyWrite(t, "crash after a write", strict, func(r *run, p point) *mishap { return diesAfter(r, p)[0] })
}

func diesBefore(r *run, p point) trouble {
	return dies(r, p, faultproxy.InsteadOf)
}

func diesAfter(r *run, p point) trouble {
	return dies(r, p, func(kill func(*faultproxy.Exchange)) faultproxy.Action {
		return faultproxy.After(func(x *faultproxy.Exchange, _ *faultproxy.Answer) { kill(x) })
	})
}

// dies kills the sender of a write. If it is the last one of the story all may be settled
// before the process is gone; that it is gone is waited for, or nobody would replace it.
func dies(r *run, p point, at func(kill func(*faultproxy.Exchange)) faultproxy.Action) trouble {
	gone := make(chan struct{})
	kill := at(func(x *faultproxy.Exchange) {
		defer close(gone)
		r.sender(x).kill()
	})
	return trouble{{rule: p.rule(kill), steps: 1, first: func() { <-gone }}}
}
