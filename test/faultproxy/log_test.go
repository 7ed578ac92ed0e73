package faultproxy_test

// What the log tells.

import (
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"warmpool.dev/controller/test/faultproxy"
)

func TestLogTellsWhatWasAskedAndWhatCameOfIt(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		client := r.client.CoreV1().ConfigMaps(r.namespace)
		owner := r.create("owner")
		wanted := configMap("a", "1")
		wanted.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
		created, err := client.Create(t.Context(), wanted, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		updated, err := client.Update(t.Context(), created, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		patch := `[{"op":"test","path":"/metadata/uid","value":"` + string(created.UID) + `"},{"op":"add","path":"/data/b","value":"2"}]`
		patched, err := client.Patch(t.Context(), "a", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stale := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &created.UID, ResourceVersion: &created.ResourceVersion}}
		if err := client.Delete(t.Context(), "a", stale); !apierrors.IsConflict(err) {
			t.Fatalf("a delete at an old version: %v", err)
		}
		if err := client.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		log := r.proxy.Log().Select(faultproxy.Match{Resource: "configmaps"})
		if len(log) != 5 {
			t.Fatalf("the log has %d requests, want 5", len(log))
		}
		create, update, patchRequest, refused, remove := log[0], log[1], log[2], log[3], log[4]
		check := func(what string, ok bool) {
			t.Helper()
			if !ok {
				t.Errorf("the log is wrong about %s: %+v", what, log)
			}
		}
		check("the creation", create.Verb == "create" && create.Who == "controller" && create.Name == "a" && create.Namespace == r.namespace)
		check("the owner in the body", create.Meta.OwnerReferences[0].UID == owner.UID)
		check("the answer", create.Code == http.StatusCreated && create.AnswerRV == created.ResourceVersion && create.AnswerUID == created.UID)
		check("the version in the body", update.Meta.ResourceVersion == created.ResourceVersion && update.AnswerRV == updated.ResourceVersion)
		check("the tests of the patch", slices.Equal(patchRequest.Tests, []string{"/metadata/uid"}) && patchRequest.AnswerRV == patched.ResourceVersion)
		check("the preconditions", *refused.Preconditions.UID == created.UID && *refused.Preconditions.ResourceVersion == created.ResourceVersion)
		check("the refusal", refused.Code == http.StatusConflict && refused.AnswerReason == metav1.StatusReasonConflict)
		check("the delete", remove.Committed() && remove.Preconditions.UID == nil && remove.AnswerUID == created.UID)
		for _, q := range log {
			check("the order of times", !q.Forwarded.Before(q.Arrived) && !q.Answered.Before(q.Forwarded) && !q.Replied.Before(q.Answered))
		}
	})
}

func TestSeenAtFollowsListsAndEvents(t *testing.T) {
	inEachMode(t, func(t *testing.T, r *rig) {
		resource := corev1.Resource("configmaps")
		before := r.create("a")
		c := r.informer()
		synced := lastTime(r)
		if seen := r.proxy.Log().SeenAt(resource, synced); older(t, seen, before.ResourceVersion) {
			t.Errorf("after the list the client has seen %q, want at least %s", seen, before.ResourceVersion)
		}
		held := r.proxy.Add(faultproxy.Rule{Match: configMaps, Do: faultproxy.HoldStream()})
		changed := r.set("a", "2")
		waitFired(t, held, 1)
		if seen := r.proxy.Log().SeenAt(resource, lastTime(r)); !older(t, seen, changed.ResourceVersion) {
			t.Errorf("while the event is held the client has seen %q, want less than %s", seen, changed.ResourceVersion)
		}
		held.Release()
		c.wait("add a=1", "update a=2")
		log := r.proxy.Log()
		// At least: a bookmark that came since may be further on, by others' writes.
		if seen := log.SeenAt(resource, lastTime(r)); older(t, seen, changed.ResourceVersion) {
			t.Errorf("after the event the client has seen %q, want at least %s", seen, changed.ResourceVersion)
		}
		if seen := log.SeenAt(resource, synced); !older(t, seen, changed.ResourceVersion) {
			t.Errorf("at the time of the list the client had seen %q", seen)
		}
		if seen := log.SeenAt(corev1.Resource("pods"), lastTime(r)); seen != "" {
			t.Errorf("of Pods the client has seen %q, want nothing", seen)
		}
	})
}

func TestKubeconfigLeadsThroughTheProxy(t *testing.T) {
	t.Parallel()
	r := newRig(t, modes[0])
	content, err := r.proxy.Kubeconfig(r.config)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		t.Fatal(err)
	}
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Secrets(r.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Error(err)
	}
	if n := len(r.proxy.Log().Select(faultproxy.Match{Verb: "list", Resource: "secrets"})); n != 1 {
		t.Errorf("the proxy has seen %d lists, want 1", n)
	}
}

// lastTime is when the proxy last did something.
func lastTime(r *rig) time.Time {
	log := r.proxy.Log()
	last := time.Time{}
	for _, q := range log.Requests {
		if q.Replied.After(last) {
			last = q.Replied
		}
	}
	for _, d := range log.Deliveries {
		if d.Time.After(last) {
			last = d.Time
		}
	}
	return last
}

func older(t *testing.T, a, b string) bool {
	t.Helper()
	order, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return order < 0
}
