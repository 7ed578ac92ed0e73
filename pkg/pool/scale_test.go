package pool_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/apis/warmpool/v1alpha1"
)

func strategy(kind v1alpha1.UpdateStrategyType) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) { p.Spec.UpdateStrategy.Type = kind }
}

// rolling sets maxUnavailable and maxSurge.
func rolling(maxUnavailable, maxSurge string) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) {
		p.Spec.UpdateStrategy = v1alpha1.UpdateStrategy{
			Type: v1alpha1.RollingUpdate,
			RollingUpdate: &v1alpha1.RollingUpdateSettings{
				MaxUnavailable: ptr.To(intstr.Parse(maxUnavailable)),
				MaxSurge:       ptr.To(intstr.Parse(maxSurge)),
			},
		}
	}
}

func tolerance(value string) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) { p.Spec.Tolerance = ptr.To(intstr.Parse(value)) }
}

func maxIdle(n int32) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) { p.Spec.MaxIdleSeconds = n }
}

// stuckAt is a pool that is known not to get on, as of a generation.
func stuckAt(generation int64) func(*v1alpha1.WarmPool) {
	return func(p *v1alpha1.WarmPool) {
		p.Status.LastProgressTime = ptr.To(ago(time.Hour))
		p.Status.ObservedGeneration = generation
		p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{
			Type: v1alpha1.PoolProgressing, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeadline, ObservedGeneration: generation,
		})
	}
}

// old makes the Pod one of another template.
func old(hash string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[v1alpha1.LabelTemplateHash] = hash }
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func aNode(name string, options ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, option := range options {
		option(node)
	}
	return node
}

func cordoned(node *corev1.Node) { node.Spec.Unschedulable = true }

func nodeReady(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodeReady, Status: status},
		}
	}
}

// nodeTurned is when the node's conditions became what they are.
func nodeTurned(before time.Duration) func(*corev1.Node) {
	return func(node *corev1.Node) {
		for i := range node.Status.Conditions {
			node.Status.Conditions[i].LastTransitionTime = ago(before)
		}
	}
}

func tolerating(toleration corev1.Toleration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Tolerations = []corev1.Toleration{toleration} }
}

const wasOld = ": made from an old template"

func TestPlanRolls(t *testing.T) {
	runPlanCases(t, []planCase{{
		name: "by default a quarter of the ready Pods at a time, rounded down",
		snapshot: snapshot(aPool(replicas(9)), aPod("a", ready, old("1")), aPod("b", ready, old("1")), aPod("c", ready, old("1")), aPod("d", ready, old("1")),
			aPod("e", ready, old("1")), aPod("f", ready, old("1")), aPod("g", ready, old("1")), aPod("h", ready, old("1")), aPod("i", ready, old("1"))),
		want: []string{"delete a" + wasOld, "delete b" + wasOld},
	}, {
		name:     "a quarter of a small pool is one Pod all the same",
		snapshot: snapshot(aPool(replicas(2)), aPod("a", ready, old("1")), aPod("b", ready, old("1"))),
		want:     []string{"delete a" + wasOld},
	}, {
		name:     "a number is one of Pods",
		snapshot: snapshot(aPool(replicas(3), rolling("2", "0")), aPod("a", ready, old("1")), aPod("b", ready, old("1")), aPod("c", ready, old("1"))),
		want:     []string{"delete a" + wasOld, "delete b" + wasOld},
	}, {
		name:     "those that are going are replaced by new ones",
		snapshot: snapshot(aPool(replicas(3)), aPod("a", ready, old("1"), podDeleting), aPod("b", ready, old("1")), aPod("c", ready, old("1"))),
		want:     []string{"create 1"},
	}, {
		name:     "no more goes until the new one is ready",
		snapshot: snapshot(aPool(replicas(3)), aPod("new"), aPod("b", ready, old("1")), aPod("c", ready, old("1"))),
		want:     []string{"again in 4m0s"},
	}, {
		name:     "then the next one goes",
		snapshot: snapshot(aPool(replicas(3)), aPod("new", ready), aPod("b", ready, old("1")), aPod("c", ready, old("1"))),
		want:     []string{"delete b" + wasOld},
	}, {
		name:     "a new one that waits for minReadySeconds is not ready yet",
		snapshot: snapshot(aPool(replicas(2), minReadySeconds(90)), aPod("new", readyFor(time.Minute)), aPod("b", readyFor(time.Hour), old("1"))),
		want:     []string{"again in 30s"},
	}, {
		name: "the oldest template first, whenever its Pods were made last",
		snapshot: snapshot(aPool(replicas(4)),
			aPod("a", ready, created(4*time.Hour), old("1")), aPod("b", ready, created(3*time.Hour), old("2")),
			aPod("c", ready, created(2*time.Hour), old("1")), aPod("d", ready, created(time.Hour), old("3"))),
		want: []string{"delete b" + wasOld},
	}, {
		name: "old ones that aren't ready go before any that is",
		snapshot: snapshot(aPool(replicas(4)),
			aPod("a", ready, old("1")), aPod("b", old("2"), onNode("n")), aPod("c", ready, old("1")), aPod("d", ready, old("1"))),
		want: []string{"delete b" + wasOld, "again in 4m0s"},
	}, {
		name: "old ones that aren't ready may get ready yet, so they go a few at a time too",
		snapshot: snapshot(aPool(replicas(4)),
			aPod("a", old("1")), aPod("b", old("1")), aPod("c", old("1")), aPod("d", old("1"))),
		want: []string{"delete a" + wasOld, "again in 4m0s"},
	}, {
		name: "new ones that aren't ready count as if they never were",
		snapshot: snapshot(aPool(replicas(4)),
			aPod("new"), aPod("b", old("1")), aPod("c", old("1")), aPod("d", old("1"))),
		want: []string{"again in 4m0s"},
	}, {
		name:     "a claim waits for the old one that is being started, so it stays",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", old("1")), aClaim("c")),
		want:     []string{"claim c: Bound=False/Pending", "again in 4m0s"},
	}, {
		name:     "unless there is no place for it, and may be for a new one",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", old("1"), unschedulable("no room")), aClaim("c")),
		want:     []string{"claim c: Bound=False/Pending", "delete a" + wasOld},
	}, {
		name:     "a pool of no replicas keeps no old one",
		snapshot: snapshot(aPool(replicas(0), tolerance("1")), aPod("a", ready, old("1"))),
		want:     []string{"delete a" + wasOld},
	}, {
		name:     "with maxSurge the new one comes first",
		snapshot: snapshot(aPool(replicas(2), rolling("0", "1")), aPod("a", ready, old("1")), aPod("b", ready, old("1"))),
		want:     []string{"create 1"},
	}, {
		name:     "an old one goes when the new one is ready",
		snapshot: snapshot(aPool(replicas(2), rolling("0", "1")), aPod("a", ready, old("1")), aPod("b", ready, old("1")), aPod("new", ready)),
		want:     []string{"delete a" + wasOld},
	}, {
		name:     "a share of maxSurge is rounded up, and no more come than there are old ones",
		snapshot: snapshot(aPool(replicas(3), rolling("0%", "100%")), aPod("a", ready, old("1")), aPod("b", ready), aPod("c", ready)),
		want:     []string{"create 1"},
	}, {
		name:     "when no old one is left there is no surge",
		snapshot: snapshot(aPool(replicas(2), rolling("0", "1")), aPod("b", ready), aPod("new", ready)),
	}, {
		name:     "where maxSize leaves no room for a surge one goes without",
		snapshot: snapshot(aPool(replicas(2), maxSize(2), rolling("0", "1")), aPod("a", ready, old("1")), aPod("b", ready, old("1"))),
		want:     []string{"delete a" + wasOld},
	}, {
		name:     "and where it leaves some the surge keeps to it",
		snapshot: snapshot(aPool(replicas(2), maxSize(3), rolling("0", "2")), aPod("a", ready, old("1")), aPod("b", ready, old("1"))),
		want:     []string{"create 1"},
	}, {
		name: "what is too many goes first, and of the rest no more than is allowed: one budget",
		snapshot: snapshot(aPool(replicas(4)),
			aPod("a", ready, old("1")), aPod("b", ready, old("1")), aPod("c", ready, old("1")), aPod("d", ready, old("1")),
			aPod("e", ready, old("1")), aPod("f", ready)),
		want: []string{"delete a: more idle Pods than asked for", "delete b: more idle Pods than asked for", "delete c" + wasOld},
	}, {
		name:     "a claim gets a new one if one is ready, however long an old one was",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", readyFor(time.Hour), old("1")), aPod("new", readyFor(time.Second)), aClaim("c")),
		want:     []string{"hand out new to c", "delete a: more idle Pods than asked for"},
	}, {
		name:     "else an old one",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", ready, old("1")), aPod("new"), aClaim("c")),
		want:     []string{"hand out a to c", "again in 4m0s"},
	}, {
		name:     "a paused pool doesn't roll",
		snapshot: snapshot(aPool(replicas(2), paused), aPod("a", ready, old("1")), aPod("b", ready)),
	}, {
		name:     "a roll that doesn't get on keeps what is ready",
		snapshot: snapshot(aPool(replicas(2), rolling("100%", "0"), stuckAt(1)), aPod("a", ready, old("1")), aPod("b", ready, old("1"))),
	}, {
		name:     "but for one that doesn't get ready",
		snapshot: snapshot(aPool(replicas(2), rolling("100%", "0"), stuckAt(1)), aPod("a", ready, old("1")), aPod("b", old("1"))),
		want:     []string{"delete b" + wasOld, "again in 58m0s"},
	}, {
		name: "another template is another attempt",
		snapshot: snapshot(aPool(replicas(2), rolling("100%", "0"), stuckAt(1), func(p *v1alpha1.WarmPool) { p.Generation = 2 }),
			aPod("a", ready, old("1")), aPod("b", ready, old("1"))),
		want: []string{"delete a" + wasOld, "delete b" + wasOld},
	}})
}

func TestPlanRecreates(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "all old ones go at once, ready or not",
		snapshot: snapshot(aPool(replicas(3), strategy(v1alpha1.Recreate)), aPod("a", ready, old("1")), aPod("b", old("1")), aPod("c", ready)),
		want:     []string{"delete a" + wasOld, "delete b" + wasOld},
	}, {
		name:     "new ones are made when they are going",
		snapshot: snapshot(aPool(replicas(2), strategy(v1alpha1.Recreate)), aPod("a", ready, old("1"), podDeleting), aPod("b", ready, old("1"), podDeleting)),
		want:     []string{"create 2"},
	}, {
		name:     "a claim gets no old one: it waits",
		snapshot: snapshot(aPool(strategy(v1alpha1.Recreate)), aPod("a", ready, old("1")), aClaim("c")),
		want:     []string{"claim c: Bound=False/Pending", "delete a" + wasOld, "create 1"},
	}, {
		name:     "not of a pool that is paused either",
		snapshot: snapshot(aPool(strategy(v1alpha1.Recreate), paused), aPod("a", ready, old("1")), aClaim("c")),
		want:     []string{"claim c: Bound=False/PoolExhausted"},
	}, {
		name:     "but a new one",
		snapshot: snapshot(aPool(replicas(0), strategy(v1alpha1.Recreate)), aPod("a", ready, old("1")), aPod("new", ready), aClaim("c")),
		want:     []string{"hand out new to c", "delete a" + wasOld},
	}, {
		name:     "what is too many is not counted twice",
		snapshot: snapshot(aPool(replicas(1), strategy(v1alpha1.Recreate)), aPod("a", ready, old("1")), aPod("b", ready, old("1")), aPod("new", ready)),
		want:     []string{"delete a" + wasOld, "delete b" + wasOld},
	}, {
		name:     "claimed ones are never touched",
		snapshot: snapshot(aPool(replicas(0), strategy(v1alpha1.Recreate)), aPod("a", ready, old("1"), of("c")), aClaim("c", bound("a"))),
	}})
}

func TestPlanOnHandOut(t *testing.T) {
	runPlanCases(t, []planCase{{
		name:     "nobody can take one for which there is no place",
		snapshot: snapshot(aPool(replicas(2), strategy(v1alpha1.OnHandOut)), aPod("a", old("1"), unschedulable("no room")), aPod("b", ready)),
		want:     []string{"delete a" + wasOld},
	}, {
		name:     "old ones stay",
		snapshot: snapshot(aPool(replicas(2), strategy(v1alpha1.OnHandOut)), aPod("a", ready, old("1")), aPod("b", ready)),
	}, {
		name:     "and are taken first",
		snapshot: snapshot(aPool(strategy(v1alpha1.OnHandOut)), aPod("a", readyFor(time.Hour), old("1")), aPod("new", readyFor(time.Minute)), aClaim("c")),
		want:     []string{"hand out a to c"},
	}})
}

func TestPlanRenews(t *testing.T) {
	const nodeIsBad = ": on a node that is cordoned or not ready"
	onTwoNodes := func(options ...any) []any {
		return append(options, aPod("a", readyFor(time.Hour), onNode("bad")), aPod("b", ready, onNode("good")), aNode("good", nodeReady(corev1.ConditionTrue)))
	}
	runPlanCases(t, []planCase{{
		name:     "Pods on a cordoned node are replaced",
		snapshot: snapshot(aPool(replicas(2)), onTwoNodes(aNode("bad", cordoned, nodeReady(corev1.ConditionTrue)))...),
		want:     []string{"delete a" + nodeIsBad},
	}, {
		name:     "those on a node that is not ready too",
		snapshot: snapshot(aPool(replicas(2)), onTwoNodes(aNode("bad", nodeReady(corev1.ConditionFalse)))...),
		want:     []string{"delete a" + nodeIsBad},
	}, {
		name:     "and on one that isn't heard of any more",
		snapshot: snapshot(aPool(replicas(2)), onTwoNodes(aNode("bad", nodeReady(corev1.ConditionUnknown)))...),
		want:     []string{"delete a" + nodeIsBad},
	}, {
		name:     "a node that says nothing of it is ready",
		snapshot: snapshot(aPool(replicas(2)), onTwoNodes(aNode("bad"))...),
	}, {
		name:     "a node that isn't known is a good one",
		snapshot: snapshot(aPool(replicas(2)), onTwoNodes()...),
	}, {
		// Or its successor would be put there too, and be replaced at once, for ever.
		name:     "a cordon doesn't matter to a Pod that tolerates it",
		snapshot: snapshot(aPool(), aPod("a", ready, onNode("bad"), tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), aNode("bad", cordoned)),
	}, {
		name: "by its name too, but not if it tolerates something else",
		snapshot: snapshot(aPool(replicas(2)),
			aPod("a", ready, onNode("bad"), tolerating(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})),
			aPod("b", ready, onNode("bad"), tolerating(corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists})),
			aNode("bad", cordoned)),
		want: []string{"delete b" + nodeIsBad},
	}, {
		name: "a Pod that was put on a node that wasn't ready stays",
		snapshot: snapshot(aPool(replicas(2)), aPod("a", ready, onNode("bad"), created(time.Minute)), aPod("b", ready, onNode("bad"), created(time.Hour)),
			aNode("bad", nodeReady(corev1.ConditionFalse), nodeTurned(30*time.Minute))),
		want: []string{"delete b" + nodeIsBad},
	}, {
		name:     "Pods on a bad node are handed out last",
		snapshot: snapshot(aPool(replicas(1)), onTwoNodes(aNode("bad", cordoned), aClaim("c"))...),
		want:     []string{"hand out b to c", "delete a" + nodeIsBad},
	}, {
		name:     "later than old ones",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", ready, onNode("bad")), aPod("b", ready, old("1")), aNode("bad", cordoned), aClaim("c")),
		want:     []string{"hand out b to c", "delete a" + nodeIsBad},
	}, {
		name:     "but they are handed out, if there is no other",
		snapshot: snapshot(aPool(replicas(0)), aPod("a", ready, onNode("bad")), aNode("bad", cordoned), aClaim("c")),
		want:     []string{"hand out a to c"},
	}, {
		name: "when all nodes are lost no more Pods go than in a roll",
		snapshot: snapshot(aPool(replicas(4)), aPod("a", notReadyFor(time.Second), onNode("bad")), aPod("b", notReadyFor(time.Second), onNode("bad")),
			aPod("c", notReadyFor(time.Second), onNode("bad")), aPod("d", notReadyFor(time.Second), onNode("bad")), aNode("bad", nodeReady(corev1.ConditionUnknown))),
		want: []string{"delete a" + nodeIsBad, "again in 4m59s"},
	}, {
		name:     "one that starts isn't idle yet: a start that takes longer must come to an end",
		snapshot: snapshot(aPool(readinessTimeout(0), maxIdle(30)), aPod("a")),
	}, {
		name:     "an idle Pod goes at maxIdleSeconds",
		snapshot: snapshot(aPool(replicas(2), maxIdle(60)), aPod("a", ready, created(60*time.Second)), aPod("b", ready, created(59*time.Second))),
		want:     []string{"delete a: older than maxIdleSeconds", "again in 1s"},
	}, {
		name:     "Recreate lets those go a few at a time too",
		snapshot: snapshot(aPool(replicas(4), maxIdle(60), strategy(v1alpha1.Recreate)), aPod("a", ready), aPod("b", ready), aPod("c", ready), aPod("d", ready)),
		want:     []string{"delete a: older than maxIdleSeconds"},
	}, {
		name:     "one that is over age is handed out after those that aren't",
		snapshot: snapshot(aPool(replicas(1), maxIdle(60)), aPod("a", readyFor(time.Minute)), aPod("b", readyFor(time.Second), created(30*time.Second)), aClaim("c")),
		want:     []string{"hand out b to c", "delete a: older than maxIdleSeconds", "again in 30s"},
	}})
}

func TestPlanToleratesSurplus(t *testing.T) {
	three := []any{aPod("a", readyFor(3*time.Second)), aPod("b", readyFor(2*time.Second)), aPod("c", readyFor(time.Second))}
	runPlanCases(t, []planCase{{
		name:     "a surplus within the tolerance stays",
		snapshot: snapshot(aPool(replicas(2), tolerance("1")), three...),
	}, {
		name:     "one beyond it goes, all of it",
		snapshot: snapshot(aPool(replicas(1), tolerance("1")), three...),
		want:     []string{"delete c: more idle Pods than asked for", "delete b: more idle Pods than asked for"},
	}, {
		name:     "a share is rounded up",
		snapshot: snapshot(aPool(replicas(2), tolerance("10%")), three...),
	}, {
		name:     "maxSize is not a matter of tolerance",
		snapshot: snapshot(aPool(replicas(2), maxSize(2), tolerance("1")), three...),
		want:     []string{"delete c: more idle Pods than asked for"},
	}})
}

func TestPlanDeletesTheLeastReadyFirst(t *testing.T) {
	surplus := ": more idle Pods than asked for"
	runPlanCases(t, []planCase{{
		name: "failed, unscheduled, pending, running, ready",
		snapshot: snapshot(aPool(replicas(0)),
			aPod("5-ready", ready, onNode("n")), aPod("4-running", onNode("n"), phase(corev1.PodRunning)), aPod("3-pending", onNode("n")),
			aPod("2-unscheduled"), aPod("1-failed", created(time.Second), ended(corev1.PodFailed))),
		want: []string{
			"delete 1-failed" + surplus, "delete 2-unscheduled" + surplus, "delete 3-pending" + surplus, "delete 4-running" + surplus, "delete 5-ready" + surplus,
			"again in 9s",
		},
	}, {
		name:     "of those the old ones, however young",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", ready, created(time.Second)), aPod("b", ready, created(time.Hour), old("1"))),
		want:     []string{"delete b" + surplus},
	}, {
		name:     "of those the youngest",
		snapshot: snapshot(aPool(replicas(1)), aPod("a", ready, created(time.Hour)), aPod("b", ready, created(time.Second))),
		want:     []string{"delete b" + surplus},
	}})
}
