package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpool.dev/controller/test/environment"
)

// losses are the ways in which a Pod ends that nobody meant to end.
var losses = map[string]struct {
	lose   func(*environment.Namespace, *corev1.Pod)
	reason string // of the claim that has the Pod
	event  string // its type
	words  string // in the claim's condition
}{
	"it fails": {
		func(ns *environment.Namespace, pod *corev1.Pod) { ns.EndPod(pod, corev1.PodFailed) },
		"PodFailed", corev1.EventTypeWarning, "the Pod ended with a failure: Failed",
	},
	"it finishes": {
		func(ns *environment.Namespace, pod *corev1.Pod) { ns.EndPod(pod, corev1.PodSucceeded) },
		"PodSucceeded", corev1.EventTypeNormal, "all containers of the Pod ended well",
	},
	"its node runs out of memory": {
		func(ns *environment.Namespace, pod *corev1.Pod) {
			ns.EvictPod(pod, "The node was low on resource: memory.")
		},
		"PodFailed", corev1.EventTypeWarning, "the Pod ended with a failure: Failed, Evicted, The node was low on resource: memory.",
	},
	"its node is drained": {
		func(ns *environment.Namespace, pod *corev1.Pod) { ns.DrainPod(pod) },
		"PodLost", corev1.EventTypeWarning, "is gone: delete this claim, and create a new one for another Pod",
	},
	"its node is lost": {
		// As the controller of nodes does after some minutes, with no kubelet to agree.
		func(ns *environment.Namespace, pod *corev1.Pod) {
			ns.Kubectl("delete", "pod", pod.Name, "--force", "--grace-period=0")
		},
		"PodLost", corev1.EventTypeWarning, "is gone: delete this claim, and create a new one for another Pod",
	},
}

func TestAnIdlePodThatIsLostIsReplaced(t *testing.T) {
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			ns.StartKubelet()
			ns.StartController()
			pool := ns.CreatePool(environment.Pool("runners", 2))
			ns.WaitPool("runners", 2, 0)
			lost := ns.PodsOf(pool.UID)[0]
			loss.lose(ns, lost)
			ns.Eventually("the Pod to be replaced", func() error {
				if ns.Pods()[lost.UID] != nil {
					return fmt.Errorf("it is there")
				}
				return nil
			})
			ns.WaitPool("runners", 2, 0)
			ns.WaitPods(2)
		})
	}
}

// Whoever has a claim works with what was in its Pod. Another Pod under the same claim
// would be an empty one that looks like the first.
func TestALostPodFinishesItsClaimForGood(t *testing.T) {
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := env.Namespace(t)
			ns.StartKubelet()
			ns.StartController()
			ns.CreatePool(environment.Pool("runners", 1))
			claim := ns.CreateClaim(environment.Claim("build", "runners"))
			uid := ns.WaitBound("build")["build"]
			ns.WaitPool("runners", 1, 1)

			loss.lose(ns, ns.Pods()[uid])
			finished := ns.WaitCondition("build", "Finished", "True", loss.reason)
			if !strings.HasSuffix(finished.Message, loss.words) {
				t.Errorf("the claim is told %q, want %q", finished.Message, loss.words)
			}
			notReady := "PodNotReady"
			if loss.reason == "PodLost" {
				notReady = "PodLost"
			}
			ns.WaitCondition("build", "Ready", "False", notReady)
			wantEvent(t, ns, claim.UID, loss.event, loss.reason)
			environment.For(t, 2*time.Second, "the claim has finished", func() error {
				for _, pod := range ns.PodsOf(claim.UID) {
					if pod.UID != uid {
						return fmt.Errorf("it was given Pod %s", pod.Name)
					}
				}
				if got := ns.Claim("build").Status.Pod; got == nil || got.UID != uid {
					return fmt.Errorf("its status names the Pod %v, want %s", got, uid)
				}
				return nil
			})
			ns.DeleteClaim("build")
			ns.CreateClaim(environment.Claim("next", "runners"))
			if next := ns.WaitBound("next")["next"]; next == uid {
				t.Error("the next claim was given the Pod that was lost")
			}
		})
	}
}

// wantEvent waits for an event of an object.
func wantEvent(t *testing.T, ns *environment.Namespace, object types.UID, kind, reason string) {
	t.Helper()
	ns.Eventually(fmt.Sprintf("an event %s", reason), func() error {
		events, err := env.Kube.CoreV1().Events(ns.Name).List(t.Context(), metav1.ListOptions{
			FieldSelector: fmt.Sprintf("involvedObject.uid=%s,reason=%s,type=%s", object, reason, kind),
		})
		if err == nil && len(events.Items) != 1 {
			err = fmt.Errorf("there are %d", len(events.Items))
		}
		return err
	})
}
