package race

// Answers that are lost, or that say what isn't so.

import (
	"net/http"
	"sync/atomic"
	"testing"

	"warmpool.dev/controller/test/environment"
	"warmpool.dev/controller/test/faultproxy"
	"warmpool.dev/controller/test/history"
)

const unanswered = "scenario: answers"

// everyThird is a rule for every third of the requests of a kind.
func everyThird(m faultproxy.Match, do faultproxy.Action) faultproxy.Rule {
	var seen atomic.Int64
	m.Where = func(*faultproxy.Request) bool { return seen.Add(1)%3 == 0 }
	return faultproxy.Rule{Match: m, Do: do}
}

// B53: a creation timed out and had happened, another was sent under a new name, and the
// two of them stopped everything until a person came. Here every third creation is done
// and its answer lost. Where the events are held besides, nobody knows of the Pod until a
// quorum read has told.
func TestEveryThirdCreationIsDoneAndItsAnswerLost(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]faultproxy.Reply{"cut off": faultproxy.Reset(), "timed out": faultproxy.Timeout()} {
		t.Run(name, func(t *testing.T) {
			r := scenario(t, unanswered, quick)
			r.goesWrong(everyThird(creations, faultproxy.LoseAnswer(reply)))
			r.ns.CreatePool(environment.Pool(poolName, 9))
			r.settleSoon()
			r.want(creations, 9, 9)
			r.wantFired("ledger", "settled_by_cache")
			r.end(history.Terms{})
		})
	}
	t.Run("and its event held", func(t *testing.T) {
		r := scenario(t, unanswered, quick)
		lost := r.goesWrong(everyThird(creations, faultproxy.LoseAnswer(faultproxy.Reset())))
		blind := r.goesWrong(blindFor("pods"))
		r.ns.CreatePool(environment.Pool(poolName, 9))
		r.waitFired(lost, 1)
		r.waitForGuard("validator", "doubts_resolved")
		r.wake(5)
		r.want(creations, 3, 3)
		blind.release()
		r.settleSoon()
		r.want(creations, 9, 9)
		r.end(history.Terms{})
	})
}

// B54: an allocation was done and its answer lost, so that the thing was allocated for
// ever, to somebody who never knew. Here the answer to a hand-out is lost and its event
// held. The claim waits, and gets that very Pod; or it is deleted meanwhile, and the Pod
// goes with it.
func TestTheAnswerToAHandOutIsLost(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"the claim waits": false, "the claim is deleted": true} {
		t.Run(name, func(t *testing.T) {
			r := filled(t, unanswered, 1, quick)
			pod := r.idle()[0]
			blind := r.goesWrong(blindFor("pods"))
			lost := r.goesWrong(faultproxy.Rule{Match: handOuts, Times: 1, Do: faultproxy.LoseAnswer(faultproxy.Reset())})
			r.createClaims("a")
			r.waitFired(lost, 1)
			r.waitForGuard("validator", "doubts_resolved")
			if deleted {
				r.ns.DeleteClaim("a")
			}
			r.wake(3)
			r.want(handOuts, 1, 1)
			blind.release()
			r.settle()
			if !deleted {
				if bound := r.ns.Claim("a").Status.Pod; bound == nil || bound.UID != pod.UID {
					t.Errorf("the claim has Pod %v, want the first, %s", bound, pod.Name)
				}
			} else if left := r.ns.Pods()[pod.UID]; left != nil {
				t.Errorf("Pod %s of a claim that was deleted is there still", left.Name)
			}
			r.want(handOuts, 1, 1)
			r.want(creations, 2, 2)
			r.end(history.Terms{})
		})
	}
}

// B55: a creation was said to be done, and later nobody knew of the thing. Here a write is
// answered as if it had been done, and isn't. (Deletions and statuses that are done and
// seem not to be are TestTheAnswerToEveryWriteIsATimeoutAndItHappens.)
func TestAWriteThatSeemsDoneIsNot(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]faultproxy.Match{
		"a creation": creations, "a deletion": deletions, "a claim's status": claimStatuses, "a pool's status": poolStatuses,
	} {
		t.Run(name, func(t *testing.T) {
			r := scenario(t, unanswered, patient)
			r.goesWrong(faultproxy.Rule{Match: m, Times: 1, Do: faultproxy.PretendDone()})
			r.ns.CreatePool(environment.Pool(poolName, 2))
			r.settleSoon()
			r.createClaims("a")
			r.settleSoon()
			r.ns.PatchPool(poolName, `{"spec": {"replicas": 1}}`)
			r.settleSoon()
			r.rest() // until every answer is counted
			m.Where = func(q *faultproxy.Request) bool {
				return !q.Committed() && q.Told > 0 && q.Told < http.StatusBadRequest
			}
			if seemed, _ := r.count(m); seemed != 1 {
				t.Errorf("%d writes only seemed done, want one", seemed)
			}
			if _, done := r.count(creations); done != 3 {
				t.Errorf("%d Pods were created, want 3", done)
			}
			r.end(history.Terms{})
		})
	}
}
