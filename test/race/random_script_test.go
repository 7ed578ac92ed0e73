package race

// Scripts: what a seed stands for. All of a script is drawn before anything runs.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"warmpool.dev/controller/test/history"
)

// script is a story, and the faults that strike in it.
type script struct {
	seed   uint64
	steps  []step
	faults []fault
	// elected tells that the controllers elect a leader.
	elected bool
	// acts are the kinds of what happens in the steps.
	acts []string
}

// electedEvery is how many scripts there are to one in which a leader is elected: such
// a one takes longer, since a lease has to expire.
const electedEvery = 16

// newScript draws the script of a seed. The same seed gives the same script.
func newScript(seed uint64) script {
	a := &author{
		Rand:    rand.New(rand.NewPCG(seed, 0)),
		script:  script{seed: seed},
		pools:   map[string]int{},
		expects: map[point]int{},
	}
	a.elected = a.IntN(electedEvery) == 0
	a.step(createsPool)
	for range 3 + a.IntN(3) {
		a.step()
	}
	for range 1 + a.IntN(4) {
		a.fault()
	}
	return a.script
}

// String is the script in words.
func (s script) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d", s.seed)
	if s.elected {
		fmt.Fprint(&text, ", with a leader and a standby")
	}
	for i, step := range s.steps {
		fmt.Fprintf(&text, "\n  step %d: %s", i+1, step.name)
	}
	for i, fault := range s.faults {
		fmt.Fprintf(&text, "\n  fault %d: %s", i+1, fault)
	}
	return text.String()
}

// without is the script with one fault less.
func (s script) without(fault int) script {
	s.faults = slices.Delete(slices.Clone(s.faults), fault, fault+1)
	return s
}

// terms are what a script is judged on: what its faults make legitimate, by the same
// rules as where they strike alone. A write that happens later than the guards wait for,
// because nobody could wait so long or because who knew of it is dead, is stopped by its
// conditions; but a creation has none, and a hand-out none against another hand-out to
// the same claim.
func (s script) terms() history.Terms {
	var terms history.Terms
	for _, f := range s.faults {
		switch {
		case !s.outlived(f):
		case f.kind.elected: // a leader sleeps: see asleepTerms
			terms.Excess += asleepTerms.Excess
			terms.Overlap = overlap
		case f.point.verb == "create":
			terms.Excess++
		case f.point.verb == "patch":
			terms.Overlap = overlap
		}
	}
	return terms
}

// excused are the rules that a script isn't judged by: see
// TestTheLeaderSleepsAtEveryWriteWhichHappensLate.
func (s script) excused() []string {
	if s.elected && s.replaces() && slices.ContainsFunc(s.faults, s.outlived) {
		return []string{"O18"}
	}
	return nil
}

// outlived tells whether a fault lets a write happen when nobody expects it any more.
func (s script) outlived(f fault) bool {
	return f.kind.muchTooLate || f.kind.elected || f.kind.late && s.replaces()
}

// replaces tells whether another process goes on in place of one that a fault strikes.
func (s script) replaces() bool {
	return slices.ContainsFunc(s.faults, func(f fault) bool { return f.kind.replaces })
}

// author draws a script. It keeps account of what will be there, so that a step is
// about something, and of how much will be sent and seen, so that most faults strike.
type author struct {
	*rand.Rand
	script
	pools   map[string]int // the replicas of those that are there
	claims  []string       // those that are there
	created int            // how many claims were created so far
	expects map[point]int  // how many there will be of a kind, which is a point without a number
}

// act is a kind of thing that users and nodes do.
type act struct {
	name   string
	weight int
	// draw makes one, as a step. It has no name if it can't be done now.
	draw func(*author) step
}

// createsPool is what every script begins with.
var createsPool = act{"create a pool", 5, (*author).createPool}

// acts are all that can happen in a step.
var acts = []act{
	createsPool,
	{"create claims", 16, (*author).createClaims},
	{"resize", 6, (*author).resize},
	{"limit", 2, (*author).limit},
	{"change the template", 3, (*author).changeTemplate},
	{"delete a claim", 6, (*author).deleteClaim},
	{"create and delete a claim", 3, (*author).createAndDeleteClaim},
	{"lose an idle Pod", 4, func(a *author) step { return a.removeIdle("is lost", (*run).losePod) }},
	{"delete an idle Pod", 2, func(a *author) step { return a.removeIdle("is deleted", (*run).deletePod) }},
	{"evict an idle Pod", 2, func(a *author) step { return a.removeIdle("is evicted", (*run).evictPod) }},
	{"lose a claimed Pod", 3, func(a *author) step { return a.removeClaimed("is lost", (*run).losePod) }},
	{"delete a claimed Pod", 2, func(a *author) step { return a.removeClaimed("is deleted", (*run).deletePod) }},
	{"evict a claimed Pod", 2, func(a *author) step { return a.removeClaimed("is evicted", (*run).evictPod) }},
	{"a claimed Pod ends", 2, func(a *author) step { return a.removeClaimed("ends by itself", (*run).endPod) }},
	{"an idle Pod is not Ready for a moment", 3, func(a *author) step { return a.removeIdle("is not Ready for a moment", (*run).flapPod) }},
	{"recreate a pool", 4, (*author).recreatePool},
	{"delete a pool", 2, (*author).deletePool},
	{"label a pool", 3, (*author).labelPool},
}

// maxActs is how much happens in a step at most, all of it at once.
const maxActs = 3

// step adds a step: the given acts, or some that are drawn.
func (a *author) step(given ...act) {
	var words []string
	var deeds []func(*run)
	for n := max(len(given), 1+a.IntN(maxActs)); len(words) < n; {
		kind := pick(a, acts, func(kind act) int { return kind.weight })
		if len(words) < len(given) {
			kind = given[len(words)]
		}
		if one := kind.draw(a); one.name != "" {
			words, deeds = append(words, one.name), append(deeds, one.do)
			a.acts = append(a.acts, kind.name)
		}
	}
	a.steps = append(a.steps, step{strings.Join(words, "; "), func(r *run) {
		for _, do := range deeds {
			do(r)
		}
	}})
}

// expect adds to the account of what will be sent, or seen.
func (a *author) expect(verb, resource, subresource string, n int) {
	a.expects[point{verb: verb, resource: resource, subresource: subresource}] += n
}

// expectPods adds so many Pods that are created and become Ready.
func (a *author) expectPods(n int) {
	a.expect("create", "pods", "", n)
	a.expect("event", "pods", "", 3*n)
}

// expectStatus adds that the status of a pool changes.
func (a *author) expectStatus() {
	a.expect("update", "warmpools", "status", 1)
	a.expect("event", "warmpools", "", 1)
}

// point draws one of those that are expected: of a write, or of an event.
func (a *author) point(chosen func(kind point) bool) point {
	var kinds []point
	for kind := range a.expects {
		if chosen(kind) {
			kinds = append(kinds, kind)
		}
	}
	// A map has no order, and a seed has one.
	slices.SortFunc(kinds, func(x, y point) int { return strings.Compare(x.String(), y.String()) })
	kind := kinds[a.IntN(len(kinds))]
	kind.n = 1 + a.IntN(max(1, a.expects[kind]))
	return kind
}

func (a *author) write() point { return a.point(func(kind point) bool { return kind.verb != "event" }) }

func (a *author) event() point { return a.point(func(kind point) bool { return kind.verb == "event" }) }

// pick draws one of all, each as often as its weight says.
func pick[T any](a *author, all []T, weight func(T) int) T {
	sum := 0
	for _, one := range all {
		sum += weight(one)
	}
	n := a.IntN(sum)
	for _, one := range all {
		if n -= weight(one); n < 0 {
			return one
		}
	}
	panic("unreachable: the weights have changed")
}
