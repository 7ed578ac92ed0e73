package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// What a person does with the examples, and sees.
func TestKubectlServesAPersonWell(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.StartKubelet()
	ns.StartController()

	ns.Kubectl("apply", "--filename="+filepath.Join(examples, "warmpool.yaml"), "--filename="+filepath.Join(examples, "podclaim.yaml"))
	ns.Kubectl("wait", "--for=condition=Available", "warmpool/runners", "--timeout=60s")
	ns.Kubectl("wait", "--for=condition=Bound", "podclaim/build-1", "--timeout=60s")
	ns.WaitPool("runners", 5, 1)

	pod := ns.Claim("build-1").Status.Pod.Name
	node := ns.Claim("build-1").Status.NodeName
	table(t, ns.Kubectl("get", "wp"), "NAME DESIRED IDLE READY CLAIMED PENDING AVAILABLE AGE", "runners 5 5 5 1 0 True")
	table(t, ns.Kubectl("get", "pclaim"), "NAME POOL BOUND REASON POD READY FINISHED AGE", "build-1 runners True HandedOut "+pod+" True")
	table(t, ns.Kubectl("get", "pclaim", "--output=wide"), "NAME POOL BOUND REASON POD READY FINISHED NODE EXPIRES AGE", "build-1 runners True HandedOut "+pod+" True "+node)
	both := ns.Kubectl("get", "wp,pclaim")
	for _, name := range []string{"warmpool.warmpool.dev/runners", "podclaim.warmpool.dev/build-1"} {
		if !strings.Contains(both, name) {
			t.Errorf("kubectl get wp,pclaim shows no %s:\n%s", name, both)
		}
		if all := ns.Kubectl("get", "all"); !strings.Contains(all, name) {
			t.Errorf("kubectl get all shows no %s:\n%s", name, all)
		}
	}
	ns.Eventually("the claim's event to be there", func() error {
		if described := ns.Kubectl("describe", "podclaim", "build-1"); !strings.Contains(described, "Pod "+pod+" is this claim's") {
			return fmt.Errorf("kubectl describe shows\n%s", described)
		}
		return nil
	})

	ns.Kubectl("scale", "wp/runners", "--replicas=3")
	ns.WaitPool("runners", 3, 1)
	ns.WaitPods(4)
	idle := strings.Fields(ns.Kubectl("get", "pods", "--output=name", "--selector="+ns.Pool("runners").Status.Selector))
	if len(idle) != 3 {
		t.Errorf("the pool's selector finds %v, want the 3 idle Pods", idle)
	}
	ns.Kubectl("scale", "wp/runners", "--replicas=0")
	ns.WaitPool("runners", 0, 1)
	ns.WaitPods(1)
}

// table checks the header and the first row of what kubectl prints, but for the age.
func table(t *testing.T, output, header, row string) {
	t.Helper()
	lines := strings.Split(output, "\n")
	if len(lines) < 2 {
		t.Errorf("kubectl prints\n%s", output)
		return
	}
	if got := strings.Join(strings.Fields(lines[0]), " "); got != header {
		t.Errorf("the header is %q, want %q", got, header)
	}
	if got := strings.Join(strings.Fields(lines[1]), " "); !strings.HasPrefix(got, row+" ") {
		t.Errorf("the row is %q, want %q", got, row)
	}
}

func TestEveryFieldIsExplained(t *testing.T) {
	t.Parallel()
	for path, fields := range map[string][]string{
		"warmpool":                  {"spec", "status"},
		"warmpool.spec":             {"replicas", "maxSize", "tolerance", "minReadySeconds", "readinessTimeoutSeconds", "progressDeadlineSeconds", "maxIdleSeconds", "updateStrategy", "claimLifetime", "paused", "template"},
		"warmpool.status":           {"replicas", "readyReplicas", "updatedReplicas", "updatedReadyReplicas", "claimedReplicas", "pendingClaims", "selector", "updateRevision", "lastProgressTime", "observedGeneration", "conditions"},
		"podclaim":                  {"spec", "status"},
		"podclaim.spec":             {"poolName", "priority", "timeoutSeconds", "lifetime", "podMetadata"},
		"podclaim.spec.podMetadata": {"labels", "annotations"},
		"podclaim.status":           {"pod", "podIPs", "nodeName", "boundTime", "expirationTime", "observedGeneration", "conditions"},
		"podclaim.status.pod":       {"name", "uid"},
	} {
		output, err := env.Kubectl(t.Context(), "explain", path)
		if err != nil {
			t.Error(err)
			continue
		}
		if strings.Contains(output, "<no description>") {
			t.Errorf("kubectl explain %s leaves something out:\n%s", path, output)
		}
		for _, field := range fields {
			if !strings.Contains(output, "\n  "+field+"\t") {
				t.Errorf("kubectl explain %s doesn't name %s:\n%s", path, field, output)
			}
		}
	}
}

// Who may edit in a namespace may use pools and claims there; who may view, may look.
func TestPeopleHaveTheRightsOfTheirRoles(t *testing.T) {
	t.Parallel()
	ns := env.Namespace(t)
	ns.Kubectl("create", "rolebinding", "editors", "--clusterrole=edit", "--user=editor")
	ns.Kubectl("create", "rolebinding", "viewers", "--clusterrole=view", "--user=viewer")
	for _, c := range []struct {
		user, verb, resource string
		want                 bool
	}{
		{"editor", "create", "podclaims.warmpool.dev", true},
		{"editor", "delete", "podclaims.warmpool.dev", true},
		{"editor", "patch", "warmpools.warmpool.dev/scale", true},
		{"editor", "update", "podclaims.warmpool.dev/status", false},
		{"viewer", "watch", "podclaims.warmpool.dev", true},
		{"viewer", "get", "warmpools.warmpool.dev", true},
		{"viewer", "create", "podclaims.warmpool.dev", false},
		{"nobody", "get", "podclaims.warmpool.dev", false},
	} {
		resource, subresource, _ := strings.Cut(c.resource, "/")
		ns.Eventually(fmt.Sprintf("%s to be allowed to %s %s: %v", c.user, c.verb, c.resource, c.want), func() error {
			// The roles are put together in the background.
			output, err := ns.TryKubectl("auth", "can-i", c.verb, resource, "--subresource="+subresource, "--as="+c.user)
			if answer := strings.TrimSpace(output); answer != "yes" && answer != "no" {
				return err
			} else if (answer == "yes") != c.want {
				return fmt.Errorf("the answer is %s", answer)
			}
			return nil
		})
	}
}
