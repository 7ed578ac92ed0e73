package race

// The faults of a script: of every kind that the other tests have, and of some more.

import (
	"fmt"
	"sync/atomic"
	"time"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// fault is something that goes wrong in a script.
type fault struct {
	kind *faultKind
	// point is where it strikes.
	point point
	// words say what is drawn besides.
	words string
	// trouble makes it, for one telling. The first mishap is the one that strikes.
	trouble func(*run) trouble
}

// String is the fault in words.
func (f fault) String() string {
	text := f.kind.name + " at " + f.point.String()
	if f.words != "" {
		text += ", " + f.words
	}
	return text
}

// faultKind is a kind of fault.
type faultKind struct {
	name   string
	weight int
	draw   func(*author) fault
	// once tells that a script has one of the kinds that say so at most: what they do
	// to lists adds up in client-go's backoff, which then lists once a minute.
	once bool
	// elected tells that it is about leaders.
	elected bool
	// replaces tells that another process goes on in place of the one it strikes.
	replaces bool
	// late tells that a write happens when its sender has been told that it won't, and
	// muchTooLate that this is later than the guards wait for.
	late, muchTooLate bool
}

// faultKinds are all that can go wrong. PretendDone isn't among them: after a write that
// was said to be done and wasn't there is no event that would wake anybody, and no
// invariant says that somebody wakes by himself.
var faultKinds = []*faultKind{
	{name: "dies before", weight: 5, draw: atWrite(diesBefore), replaces: true},
	{name: "dies after", weight: 5, draw: atWrite(diesAfter), replaces: true},
	{name: "answer lost", weight: 4, draw: atWrite(with(faultproxy.LoseAnswer(faultproxy.Reset())))},
	{name: "504, done", weight: 3, draw: atWrite(with(faultproxy.LoseAnswer(faultproxy.Timeout())))},
	{name: "request lost", weight: 3, draw: atWrite(with(faultproxy.Refuse(faultproxy.Reset())))},
	{name: "write late", weight: 4, draw: happensLate, late: true},
	{name: "write much too late", weight: 3, draw: atWrite(happensMuchTooLate), muchTooLate: true},
	{name: "conflict", weight: 3, draw: atWrite(meetsConflict)},
	{name: "429", weight: 2, draw: atWrite(with(faultproxy.Refuse(faultproxy.TooManyRequests(time.Second))))},
	{name: "500", weight: 2, draw: atWrite(with(faultproxy.Refuse(faultproxy.InternalError())))},
	{name: "504, not done", weight: 2, draw: atWrite(with(faultproxy.Refuse(faultproxy.Timeout())))},
	{name: "no answer, not done", weight: 2, draw: atWrite(with(faultproxy.Refuse(faultproxy.Hang())))},
	{name: "no write passes", weight: 3, draw: refusesWrites},
	{name: "answer slow", weight: 3, draw: answersSlowly},
	{name: "connections cut", weight: 2, draw: atWrite(cutsConnections)},
	{name: "blind", weight: 8, draw: goesBlind},
	{name: "frozen", weight: 3, draw: freezes},
	{name: "always a little late", weight: 2, draw: lags},
	{name: "watch closed", weight: 2, draw: endsWatch(faultproxy.Closed())},
	{name: "watch lost", weight: 2, draw: endsWatch(faultproxy.Reset())},
	{name: "watch expired", weight: 2, draw: endsWatch(faultproxy.Expired()), once: true},
	{name: "list refused", weight: 3, draw: refusesList, once: true},
	{name: "list stops", weight: 3, draw: stopsList, once: true},
	{name: "bookmarks dropped", weight: 1, draw: dropsBookmarks},
	{name: "quorum reads refused", weight: 2, draw: refusesQuorumReads},
	{name: "leader sleeps", weight: 12, draw: atWrite(leaderSleeps), elected: true, replaces: true},
	{name: "leader sleeps, write late", weight: 8, draw: atWrite(leaderSleepsWriteLate), elected: true, replaces: true, muchTooLate: true},
}

// fault adds a fault.
func (a *author) fault() {
	kind := pick(a, faultKinds, func(kind *faultKind) int {
		for _, f := range a.faults {
			if kind.once && f.kind.once || kind.elected && f.kind.elected {
				return 0
			}
		}
		if kind.elected && !a.elected {
			return 0
		}
		return kind.weight
	})
	f := kind.draw(a)
	f.kind = kind
	a.faults = append(a.faults, f)
}

// atWrite draws a fault at a write.
func atWrite(make func(*run, point) trouble) func(*author) fault {
	return func(a *author) fault {
		p := a.write()
		return fault{point: p, trouble: func(r *run) trouble { return make(r, p) }}
	}
}

// with does something to a write, and lets the story go on for a step meanwhile.
func with(do faultproxy.Action) func(*run, point) trouble {
	return func(_ *run, p point) trouble { return trouble{{rule: p.rule(do), steps: 1}} }
}

// happensLate lets a write happen within the time in which the guards expect it: that
// which it is given, after its sender was told that the connection broke.
func happensLate(a *author) fault {
	p, by := a.write(), time.Duration(1+a.IntN(10))*writeTimeout/10
	return fault{point: p, words: "by " + by.String(), trouble: func(*run) trouble {
		done := make(chan struct{})
		late := faultproxy.Do("late", func(_ *faultproxy.Exchange, forward func() *faultproxy.Answer) *faultproxy.Answer {
			time.AfterFunc(by, func() {
				defer close(done)
				forward()
			})
			return nil
		})
		return trouble{{rule: p.rule(late), until: allIsOver, first: func() { <-done }}}
	}}
}

func happensMuchTooLate(_ *run, p point) trouble {
	return trouble{{rule: p.rule(faultproxy.LateCommit(faultproxy.Timeout())), until: allIsOver}}
}

func meetsConflict(r *run, p point) trouble {
	if p.verb == "create" {
		return with(faultproxy.Refuse(faultproxy.AlreadyExists()))(r, p)
	}
	return with(faultproxy.Refuse(faultproxy.Conflict()))(r, p)
}

// answersSlowly lets the events of a write overtake its answer, which may come when its
// sender has given up.
func answersSlowly(a *author) fault {
	p, by := a.write(), time.Duration(1+a.IntN(15))*writeTimeout/10
	return fault{point: p, words: "by " + by.String(), trouble: func(r *run) trouble { return with(faultproxy.LagAnswer(by))(r, p) }}
}

// refusesWrites refuses all writes for a while, from one on.
func refusesWrites(a *author) fault {
	replies := []faultproxy.Reply{faultproxy.InternalError(), faultproxy.Timeout(), faultproxy.Unavailable(), faultproxy.Reset()}
	p, steps, atLeast, reply := a.write(), a.IntN(2), a.while(), replies[a.IntN(len(replies))]
	return fault{point: p, words: fmt.Sprintf("for %s and %d steps, with %s", atLeast, steps, reply), trouble: func(*run) trouble {
		from := p.rule(faultproxy.Refuse(reply))
		var begun atomic.Bool
		rule := faultproxy.Rule{Name: p.String(), Do: from.Do, Match: faultproxy.Match{Verb: faultproxy.Writes, Where: func(q *faultproxy.Request) bool {
			same := q.Verb == p.verb && q.Resource == p.resource && q.Subresource == p.subresource
			if same && from.Match.Where(q) {
				begun.Store(true)
			}
			return begun.Load() && history.IsGuarded(q)
		}}}
		return trouble{{rule: rule, steps: steps, atLeast: atLeast}}
	}}
}

// cutsConnections resets all connections of the sender of a write, which happens.
func cutsConnections(r *run, p point) trouble {
	return with(faultproxy.Before(func(x *faultproxy.Exchange) { r.sender(x).proxy.Cut() }))(r, p)
}

// goesBlind holds the events of a resource back, mostly for a short time, and sometimes
// for one in which the validator loses its patience.
func goesBlind(a *author) fault {
	p, steps, atLeast := a.event(), a.IntN(3), a.while()
	return fault{point: p, words: fmt.Sprintf("for %s and %d steps", atLeast, steps), trouble: func(*run) trouble {
		return trouble{{rule: p.blindness(), steps: steps, atLeast: atLeast}}
	}}
}

// freezes does the same, and holds the end of the watch too.
func freezes(a *author) fault {
	p, steps, atLeast := a.event(), a.IntN(3), a.while()
	return fault{point: p, words: fmt.Sprintf("for %s and %d steps", atLeast, steps), trouble: func(*run) trouble {
		return trouble{{steps: steps, atLeast: atLeast, rule: faultproxy.Rule{
			Name:  p.String(),
			Match: faultproxy.Match{Verb: "watch", Resource: p.resource},
			Skip:  p.n - 1,
			Do:    faultproxy.Freeze(),
		}}}
	}}
}

// while draws how long something lasts at least.
func (a *author) while() time.Duration {
	if a.IntN(10) == 0 {
		return 6 * time.Second
	}
	return time.Duration(a.IntN(16)) * 100 * time.Millisecond
}

// lags delays all events of a resource, from one on.
func lags(a *author) fault {
	p, by := a.event(), time.Duration(1+a.IntN(6))*50*time.Millisecond
	return fault{point: p, words: "by " + by.String(), trouble: func(*run) trouble {
		rule := p.blindness()
		rule.Do = faultproxy.LagEvents(by)
		return trouble{{rule: rule, until: allIsOver}}
	}}
}

// ends is a rule that ends a watch in place of an event, and has as its second result
// whether it has.
func (p point) ends(reply faultproxy.Reply) (faultproxy.Rule, *atomic.Bool) {
	var seen atomic.Int64
	var ended atomic.Bool
	return faultproxy.Rule{
		Name: p.String(),
		Match: faultproxy.Match{Verb: "watch", Resource: p.resource, WhereEvent: func(e *faultproxy.Event) bool {
			if !isObject(e.Type) || seen.Add(1) != int64(p.n) {
				return false
			}
			ended.Store(true)
			return true
		}},
		Do: faultproxy.EndStream(reply),
	}, &ended
}

func endsWatch(reply faultproxy.Reply) func(*author) fault {
	return func(a *author) fault {
		p := a.event()
		return fault{point: p, trouble: func(*run) trouble {
			rule, _ := p.ends(reply)
			return trouble{{rule: rule}}
		}}
	}
}

// relists is a fault that has a resource listed anew, and does something to that list.
func relists(p point, words string, steps int, rules ...faultproxy.Rule) fault {
	return fault{point: p, words: words, trouble: func(*run) trouble {
		rule, ended := p.ends(faultproxy.Expired())
		all := trouble{{rule: rule}}
		for _, rule := range rules {
			chosen := rule.Match.Where
			rule.Match.Resource = p.resource
			rule.Match.Where = func(q *faultproxy.Request) bool { return ended.Load() && chosen(q) }
			all = append(all, &mishap{rule: rule, steps: steps})
		}
		return all
	}}
}

// refusesList refuses a list, not so often that client-go would wait for a minute.
func refusesList(a *author) fault {
	replies := []faultproxy.Reply{
		faultproxy.TooManyRequests(time.Second), faultproxy.InternalError(), faultproxy.Timeout(),
		faultproxy.TooLargeResourceVersion(), faultproxy.Expired(), faultproxy.Reset(),
	}
	reply, times := replies[a.IntN(len(replies))], 1+a.IntN(2)
	rule := faultproxy.Rule{Match: relist(""), Times: times, Do: faultproxy.Refuse(reply)}
	return relists(a.event(), fmt.Sprintf("%d times with %s", times, reply), 0, rule)
}

// stopsList lets a list stop in the midst.
func stopsList(a *author) fault {
	const bytes = 300
	p, steps := a.event(), a.IntN(3)
	switch a.IntN(4) {
	case 0:
		return relists(p, "streamed", steps, faultproxy.Rule{Match: initial(), Times: 1, Do: faultproxy.HoldStream()})
	case 1:
		return relists(p, "streamed, and is cut", steps, faultproxy.Rule{Match: initial(), Times: 1, Do: faultproxy.EndStream(faultproxy.Reset())})
	case 2:
		return relists(p, "not streamed", steps, notStreamed(), faultproxy.Rule{Match: relist("list"), Times: 1, Do: faultproxy.StallBody(bytes)})
	default:
		return relists(p, "not streamed, and is cut", steps, notStreamed(), faultproxy.Rule{Match: relist("list"), Times: 1, Do: faultproxy.CutBody(bytes)})
	}
}

func dropsBookmarks(*author) fault {
	return fault{point: point{verb: "event", resource: "bookmarks", n: 1}, trouble: func(*run) trouble {
		return trouble{{rule: withoutBookmarks, until: allIsOver}}
	}}
}

// refusesQuorumReads refuses those of the fence, and those about writes in doubt.
func refusesQuorumReads(a *author) fault {
	replies := []faultproxy.Reply{faultproxy.TooManyRequests(time.Second), faultproxy.InternalError(), faultproxy.Timeout(), faultproxy.Reset()}
	reply, times := replies[a.IntN(len(replies))], 1+a.IntN(4)
	return fault{point: point{verb: "list", resource: "any", n: 1}, words: fmt.Sprintf("%d times with %s", times, reply), trouble: func(*run) trouble {
		return trouble{{rule: faultproxy.Rule{Match: quorumRead(), Times: times, Do: faultproxy.Refuse(reply)}}}
	}}
}

// leaderSleeps has the leader sleep with a write on its way, until another has taken over.
func leaderSleeps(r *run, p point) trouble {
	s := &sleeper{r: r}
	return trouble{
		{rule: p.rule(faultproxy.Before(s.sleep))},
		{rule: p.rule(faultproxy.HoldRequest()), steps: 1, until: othersSettled, first: func() { s.outlast(); s.wake() }},
	}
}

// leaderSleepsWriteLate is the same, and the write happens in the other's term: see
// TestTheLeaderSleepsAtEveryWriteWhichHappensLate.
func leaderSleepsWriteLate(r *run, p point) trouble {
	s := &sleeper{r: r}
	return trouble{
		{rule: p.rule(faultproxy.Before(s.sleep))},
		{rule: p.rule(faultproxy.LateCommit(faultproxy.Hang())), steps: 1, until: othersSettled, first: s.outlast, then: s.wake},
	}
}
