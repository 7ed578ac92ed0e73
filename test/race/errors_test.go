package race

import (
	"testing"
	"time"

	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

// P5: the API server says that the object has changed, or that the name is taken, and
// neither is true.
func TestEveryWriteMeetsAConflict(t *testing.T) {
	everyWrite(t, "409", strict, func(_ *run, p point) *mishap {
		reply := faultproxy.Conflict()
		if p.verb == "create" {
			reply = faultproxy.AlreadyExists()
		}
		return &mishap{rule: p.rule(faultproxy.Refuse(reply)), steps: 1}
	})
}

// P5: the API server is busy; client-go itself tries again after a second.
func TestEveryWriteIsThrottled(t *testing.T) {
	everyWrite(t, "429", strict, always(faultproxy.Refuse(faultproxy.TooManyRequests(time.Second))))
}

// P5
func TestEveryWriteMeetsAnInternalError(t *testing.T) {
	everyWrite(t, "500", strict, always(faultproxy.Refuse(faultproxy.InternalError())))
}

// P5: a timeout that says nothing of whether the write happens, and it doesn't.
func TestEveryWriteTimesOutAndDoesNotHappen(t *testing.T) {
	everyWrite(t, "504, not done", strict, always(faultproxy.Refuse(faultproxy.Timeout())))
}

// P5: no answer at all; the controller gives up by itself.
func TestEveryWriteGetsNoAnswer(t *testing.T) {
	everyWrite(t, "no answer, not done", strict, always(faultproxy.Refuse(faultproxy.Hang())))
}

// A readTrouble is what happens to those who list or watch.
type readTrouble struct {
	name string
	// end is how the watches end first: Expired, and a list is asked for; Closed, and
	// another watch is.
	end faultproxy.Reply
	// rules are what happens to the next requests for a resource.
	rules []faultproxy.Rule
}

// relist and rewatch choose the requests that an informer makes when its watch has ended.
func relist(verb string) faultproxy.Match {
	return faultproxy.Match{Verb: verb, Where: func(r *faultproxy.Request) bool {
		streamed := r.Query.Get("sendInitialEvents") == "true"
		return r.Name == "" && (r.Verb == "list" || streamed)
	}}
}

func rewatch() faultproxy.Match {
	return faultproxy.Match{Verb: "watch", Where: func(r *faultproxy.Request) bool {
		return r.Query.Get("sendInitialEvents") != "true"
	}}
}

// initial chooses the events of a streamed list.
func initial() faultproxy.Match {
	m := relist("watch")
	m.Event = "ADDED"
	return m
}

// notStreamed makes an informer list, for once.
func notStreamed() faultproxy.Rule {
	return faultproxy.Rule{Match: relist("watch"), Times: 1, Do: faultproxy.Refuse(faultproxy.Invalid())}
}

// P8 and P5 for reads: at the start, and when the watches of a resource end before some
// steps, the lists and watches of it go wrong. Where a list stops in the midst, the
// informer's queue grows while the view stays old: nothing may act on it.
func TestEveryListAndWatchGoesWrong(t *testing.T) {
	const busy = time.Second
	refuse := func(m faultproxy.Match, reply faultproxy.Reply) []faultproxy.Rule {
		return []faultproxy.Rule{{Match: m, Times: 2, Do: faultproxy.Refuse(reply)}}
	}
	once := func(m faultproxy.Match, do faultproxy.Action) []faultproxy.Rule {
		return []faultproxy.Rule{{Match: m, Times: 1, Do: do}}
	}
	const inTheMidst = 300 // bytes
	for i, trouble := range []readTrouble{
		{"list 429", faultproxy.Expired(), refuse(relist(""), faultproxy.TooManyRequests(busy))},
		{"list 500", faultproxy.Expired(), refuse(relist(""), faultproxy.InternalError())},
		{"list 504", faultproxy.Expired(), refuse(relist(""), faultproxy.Timeout())},
		{"list 504 too large version", faultproxy.Expired(), refuse(relist(""), faultproxy.TooLargeResourceVersion())},
		{"list 410", faultproxy.Expired(), refuse(relist(""), faultproxy.Expired())},
		{"list lost", faultproxy.Expired(), refuse(relist(""), faultproxy.Reset())},
		{"list held", faultproxy.Expired(), once(relist(""), faultproxy.HoldRequest())},
		{"list not streamed", faultproxy.Expired(), []faultproxy.Rule{notStreamed()}},
		{"list not streamed, 429", faultproxy.Expired(), append(refuse(relist("list"), faultproxy.TooManyRequests(busy)), notStreamed())},
		{"list not streamed, stops", faultproxy.Expired(), append(once(relist("list"), faultproxy.StallBody(inTheMidst)), notStreamed())},
		{"list not streamed, cut", faultproxy.Expired(), append(once(relist("list"), faultproxy.CutBody(inTheMidst)), notStreamed())},
		{"list streamed, stops", faultproxy.Expired(), once(initial(), faultproxy.HoldStream())},
		{"list streamed, 429 in the midst", faultproxy.Expired(), once(initial(), faultproxy.EndStream(faultproxy.TooManyRequests(busy)))},
		{"list streamed, 410 in the midst", faultproxy.Expired(), once(initial(), faultproxy.EndStream(faultproxy.Expired()))},
		{"list streamed, cut", faultproxy.Expired(), once(initial(), faultproxy.EndStream(faultproxy.Reset()))},
		{"watch 429", faultproxy.Closed(), refuse(rewatch(), faultproxy.TooManyRequests(busy))},
		{"watch 500", faultproxy.Closed(), refuse(rewatch(), faultproxy.InternalError())},
		{"watch 410", faultproxy.Closed(), refuse(rewatch(), faultproxy.Expired())},
		{"watch lost", faultproxy.Closed(), refuse(rewatch(), faultproxy.Reset())},
		{"watch held", faultproxy.Closed(), once(rewatch(), faultproxy.HoldRequest())},
		{"bookmarks dropped", faultproxy.Closed(), []faultproxy.Rule{withoutBookmarks}},
	} {
		for _, resource := range []string{"pods", "podclaims", "warmpools"} {
			t.Run(resource+" "+trouble.name, func(t *testing.T) {
				t.Parallel()
				r := newRun(t, env, trouble.name)
				for _, m := range trouble.of(resource) {
					m.steps = 0
					r.trouble = append(r.trouble, m)
				}
				r.launch()
				// Not more often, or client-go's backoff lets nobody list for a minute.
				r.tell(interrupted(story(), resource, trouble, i%3, i%3+3))
				r.finish(history.Terms{})
			})
		}
	}
}

// withoutBookmarks takes the bookmarks out of a watch, but for those that end a list.
var withoutBookmarks = faultproxy.Rule{
	Match: faultproxy.Match{Event: "BOOKMARK", WhereEvent: func(e *faultproxy.Event) bool { return !e.InitialEnd }},
	Do:    faultproxy.DropEvents(),
}

// of is the trouble for one resource, once.
func (r readTrouble) of(resource string) trouble {
	var all trouble
	for _, rule := range r.rules {
		rule.Match.Resource = resource
		all = append(all, &mishap{rule: rule, steps: 1})
	}
	return all
}

// interrupted is a story before some steps of which the watches of a resource end, and it
// goes wrong to replace them.
func interrupted(steps []step, resource string, what readTrouble, before ...int) []step {
	for _, i := range before {
		do := steps[i].do
		steps[i].do = func(r *run) {
			for _, m := range what.of(resource) {
				r.goWrong(m)
			}
			r.current().proxy.EndWatches(faultproxy.Match{Verb: "watch", Resource: resource}, what.end)
			do(r)
		}
	}
	return steps
}

// The quorum reads of the fence, and of the validator about writes that are in doubt, go
// wrong.
func TestEveryQuorumReadGoesWrong(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]faultproxy.Reply{
		"429":  faultproxy.TooManyRequests(time.Second),
		"500":  faultproxy.InternalError(),
		"504":  faultproxy.Timeout(),
		"lost": faultproxy.Reset(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, env, "quorum read "+name)
			r.trouble = trouble{
				{rule: faultproxy.Rule{Times: 6, Do: faultproxy.Refuse(reply), Match: faultproxy.Match{Verb: "list", Where: func(q *faultproxy.Request) bool { return q.Name != "" }}}},
				{rule: point{verb: "patch", resource: "pods", n: 2}.rule(faultproxy.Refuse(faultproxy.Timeout()))},
				{rule: point{verb: "create", resource: "pods", n: 5}.rule(faultproxy.Refuse(faultproxy.Timeout()))},
				{rule: point{verb: "update", resource: "podclaims", subresource: "status", n: 4}.rule(faultproxy.Refuse(faultproxy.Timeout()))},
			}
			r.launch()
			r.tell(story())
			r.finish(history.Terms{})
		})
	}
}
