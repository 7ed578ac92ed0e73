package race

import (
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// The lease is not quite as short as the flags allow for with writes of a second: where
// processors are scarce, a leader that can't renew it in time ends, rightly.
var electionFlags = []string{
	"--leader-elect",
	"--leader-elect-lease-duration=6s",
	"--leader-elect-renew-deadline=5s",
	"--leader-elect-retry-period=250ms",
}

// overlap is how long a second Pod of a claim may live where two leaders overlapped, or a
// hand-out happened when nobody expected it any more.
const overlap = 10 * time.Second

// newElection returns a run whose controllers elect a leader.
func newElection(t *testing.T, mode string) *run {
	t.Helper()
	r := newRun(t, env, mode)
	r.ns.GrantLease()
	r.flags = append(append(r.flags, electionFlags...), "--leader-elect-namespace="+r.ns.Name)
	return r
}

// launchPair launches a leader and a standby. Whichever of them ends or sleeps is replaced.
func (r *run) launchPair() (leader, standby *process) {
	r.t.Helper()
	leader = r.launch()
	leader.controller.WaitLeading()
	standby = r.launch()
	standby.controller.WaitReady()
	return leader, standby
}

// everyTerm has something happen to the leader of the time at each of the points.
func everyTerm(t *testing.T, mode string, points []point, terms history.Terms, mishaps func(*run, point) trouble) {
	t.Helper()
	for _, group := range groups(points, writesPerTelling) {
		t.Run(nameOf(group), func(t *testing.T) {
			t.Parallel()
			r := newElection(t, mode)
			for _, p := range group {
				r.trouble = append(r.trouble, mishaps(r, p)...)
			}
			r.launchPair()
			r.tell(story())
			r.finish(terms)
		})
	}
}

// every chooses every nth point, from the given one on.
func every(n, from int, points []point) []point {
	var chosen []point
	for i := from; i < len(points); i += n {
		chosen = append(chosen, points[i])
	}
	return chosen
}

// P11: the leader is killed right before, or right after, a write, and the standby takes
// over when the lease has expired.
func TestTheLeaderDiesAtEveryWrite(t *testing.T) {
	t.Parallel()
	everyTerm(t, "leader dies before a write", every(2, 0, writesIn(reference(t))), history.Terms{}, diesBefore)
	everyTerm(t, "leader dies after a write", every(2, 1, writesIn(reference(t))), history.Terms{}, diesAfter)
}

// P11: the leader sleeps with a write on its way, until the standby has taken over and
// done all there is to do. It wakes, and ends without having sent anything more, but for
// what was on its way with that write: its conditions have to do.
func TestTheLeaderSleepsAtEveryWrite(t *testing.T) {
	t.Parallel()
	everyTerm(t, "leader sleeps at a write", every(2, 0, writesIn(reference(t))), asleepTerms, func(r *run, p point) trouble {
		s := &sleeper{r: r}
		return trouble{
			{rule: p.rule(faultproxy.Before(s.sleep))},
			{rule: p.rule(faultproxy.HoldRequest()), steps: 1, until: othersSettled, first: func() { s.outlast(); s.wake() }},
		}
	})
}

// P11 and P4: the same, and the write happens while the standby leads, before the other
// wakes, long after the API server was told to give it up. Its conditions have to do: it
// fails if anybody has touched the object since. If nobody has, it may take effect out of
// its sender's term, which O18 is about, and harm nobody, which all the others are about.
func TestTheLeaderSleepsAtEveryWriteWhichHappensLate(t *testing.T) {
	t.Parallel()
	everyTerm(t, "leader sleeps, write late", every(2, 1, writesIn(reference(t))), asleepTerms, func(r *run, p point) trouble {
		s := &sleeper{r: r}
		r.excused = []string{"O18"}
		return trouble{
			{rule: p.rule(faultproxy.Before(s.sleep))},
			{rule: p.rule(faultproxy.LateCommit(faultproxy.Hang())), steps: 1, until: othersSettled, first: s.outlast, then: s.wake},
		}
	})
}

// asleepTerms are those of a telling in which leaders sleep with writes on their way: a
// creation is one too many, and a hand-out the second for its claim.
var asleepTerms = history.Terms{Excess: writesPerTelling, Overlap: overlap}

// sleeper is a leader that sleeps.
type sleeper struct {
	r *run
	p atomic.Pointer[process]
}

// sleep stops the sender of a request where it stands.
func (s *sleeper) sleep(x *faultproxy.Exchange) {
	p := s.r.sender(x)
	p.controller.Freeze()
	p.asleep.Store(true)
	s.p.Store(p)
}

// outlast waits until another leads.
func (s *sleeper) outlast() {
	s.r.t.Helper()
	ctx, cancel := s.r.within(settleTimeout)
	defer cancel()
	asleep := s.p.Load().identity()
	err := s.r.recorder.WaitFor(ctx, "another leader", func(w *history.World) bool {
		for _, lease := range w.Leases {
			holder := ptr.Deref(lease.Spec.HolderIdentity, "")
			return holder != "" && holder != asleep
		}
		return false
	})
	if err != nil {
		s.r.t.Fatal(err)
	}
}

// wake lets it go on, and waits for its end: its term is over. What it was about to send
// may be where another is to fall asleep, so it may take more than one call.
func (s *sleeper) wake() {
	s.r.t.Helper()
	p := s.p.Load()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	p.woken = append(p.woken, time.Now())
	for begun := time.Now(); !p.controller.Ended() && time.Since(begun) < settleTimeout; <-ticker.C {
		p.controller.Thaw()
	}
	if code := p.controller.WaitForEnd(); code != 1 || !strings.Contains(p.controller.Log(), "lost the lease") {
		s.r.t.Errorf("%s woke up after its term and ended with exit code %d, and not because it had lost the lease", p.name, code)
	}
}

// identityInLog finds the name under which a controller is a candidate.
var identityInLog = regexp.MustCompile(`"Waiting for the lease" .*identity="([^"]+)"`)

func (p *process) identity() string {
	match := identityInLog.FindStringSubmatch(p.controller.Log())
	if match == nil {
		return ""
	}
	return match[1]
}

// P12: from some event on the standby is blind for a resource, and then has to take over.
// The fence holds it back until it sees.
func TestABlindStandbyTakesOver(t *testing.T) {
	t.Parallel()
	events := eventsIn(reference(t))
	for _, p := range every(max(1, len(events)/12), 1, events) {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			r := newElection(t, "blind standby")
			leader := r.launch()
			leader.controller.WaitLeading()
			blind := &mishap{rule: p.blindness(), until: allIsOver}
			r.trouble = trouble{blind}
			standby := r.launch()
			standby.controller.WaitReady()
			for _, s := range story() {
				s.do(r)
				r.settle()
				if blind.fired() && !leader.controller.Ended() {
					r.takeOverBlindly(leader, standby, blind)
				}
			}
			r.heal()
			r.finish(history.Terms{})
		})
	}
}

// quorumRead chooses a quorum read of the guards.
func quorumRead() faultproxy.Match {
	return faultproxy.Match{Verb: "list", Where: func(q *faultproxy.Request) bool { return q.Name != "" }}
}

// takeOverBlindly kills the leader, and gives the standby its sight back when it has asked
// what it must see.
func (r *run) takeOverBlindly(leader, standby *process, blind *mishap) {
	r.t.Helper()
	tally.noteFirings(leader.controller.Metrics())
	leader.kill()
	leader.replaced = true
	ctx, cancel := r.within(settleTimeout)
	defer cancel()
	asked := len(standby.proxy.Log().Select(quorumRead()))
	const resources = 3
	if _, err := standby.proxy.WaitRequests(ctx, asked+resources, quorumRead(), (*faultproxy.Request).Committed); err != nil {
		r.t.Fatal(err)
	}
	r.createClaims("late") // something to do
	ctx, cancel = r.within(stallAfter)
	defer cancel()
	if wrote, err := standby.proxy.WaitRequests(ctx, 1, faultproxy.Match{Verb: faultproxy.Writes, Where: history.IsGuarded}, nil); err == nil {
		r.t.Errorf("the standby has sent %s %s while it was blind", wrote[0].Verb, wrote[0].Resource)
	}
	blind.release()
	r.settle()
}

// P13: the leader's requests for the lease get no answer any more, and all others do. It
// sends nothing that could land after its term, and ends; the standby takes over. All the
// while there is something to do.
func TestTheLeaderCanNoLongerRenewItsLease(t *testing.T) {
	t.Parallel()
	r := newElection(t, "lease black-holed")
	leader, standby := r.launchPair()
	for i, s := range story() {
		s.do(r)
		r.settle()
		if i == 1 {
			r.loseLease(leader)
			standby.controller.WaitLeading()
		}
	}
	r.heal()
	r.finish(history.Terms{})
}

// loseLease lets no request for the lease through, and makes work until the leader ends.
func (r *run) loseLease(leader *process) {
	r.t.Helper()
	m := &mishap{rule: faultproxy.Rule{Match: faultproxy.Match{Resource: "leases"}, Do: faultproxy.Refuse(faultproxy.Hang())}, until: allIsOver}
	m.faults = append(m.faults, leader.proxy.Add(m.rule))
	r.trouble = append(r.trouble, m)
	metrics := ""
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; !leader.controller.Ended(); n++ {
		if latest, err := leader.controller.TryMetrics(); err == nil {
			metrics = latest
		}
		r.ns.PatchPool(poolName, fmt.Sprintf(`{"spec": {"replicas": %d}}`, 2+n%3))
		<-ticker.C
	}
	tally.noteFirings(metrics)
	if code := leader.controller.WaitForEnd(); code != 1 {
		r.t.Errorf("the leader that couldn't renew ended with exit code %d, want 1", code)
	}
	leader.replaced = true
	r.ns.PatchPool(poolName, `{"spec": {"replicas": 3}}`)
}
