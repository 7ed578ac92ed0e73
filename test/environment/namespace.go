package environment

// A test's own namespace.

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
)

// Namespace is one test's namespace. Its methods end the test when something fails
// that the test doesn't ask about.
type Namespace struct {
	// Name of the namespace: the test's, and a random suffix.
	Name string

	env *Environment
	t   testing.TB
}

// Namespace creates a namespace for the test, in which Pods can be created. It is
// deleted when the test ends.
func (e *Environment) Namespace(t testing.TB) *Namespace {
	t.Helper()
	n := &Namespace{Name: namespaceName(t.Name()), env: e, t: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	if _, err := e.Kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.delete)
	// The admission plugin ServiceAccount refuses Pods until it is there.
	Eventually(t, "the service account of the namespace", func() error {
		_, err := e.Kube.CoreV1().ServiceAccounts(n.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return n
}

// notInNames is what a namespace's name can't have.
var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

func namespaceName(test string) string {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(strings.TrimPrefix(test, "Test")), "-"), "-")
	return strings.TrimRight(name[:min(len(name), 50)], "-") + "-" + utilrand.String(5)
}

// delete removes the namespace with all that is in it. Nobody plays the kubelet any
// more, so the Pods are not asked to end.
func (n *Namespace) delete() {
	ctx := context.WithoutCancel(n.t.Context())
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	if err := n.env.Kube.CoreV1().Pods(n.Name).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		n.t.Logf("delete the Pods of namespace %s: %v", n.Name, err)
	}
	if err := n.env.Kube.CoreV1().Namespaces().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
		n.t.Logf("delete namespace %s: %v", n.Name, err)
	}
}

// Kubectl runs kubectl in this namespace, as the administrator, and returns what it
// prints.
func (n *Namespace) Kubectl(args ...string) string {
	n.t.Helper()
	output, err := n.TryKubectl(args...)
	if err != nil {
		n.t.Fatal(err)
	}
	return output
}

// TryKubectl is Kubectl for a command that may fail; the error holds the complaint.
func (n *Namespace) TryKubectl(args ...string) (string, error) {
	return n.env.Kubectl(n.t.Context(), append([]string{"--namespace=" + n.Name}, args...)...)
}

// Eventually is Eventually for the namespace's test. If the condition doesn't come
// true, what is in the namespace is shown.
func (n *Namespace) Eventually(what string, check func() error) {
	n.t.Helper()
	cameTrue := false
	defer func() {
		if !cameTrue {
			n.t.Log(n.describe())
		}
	}()
	Eventually(n.t, what, check)
	cameTrue = true
}

// describe is the state of the namespace as a person would look at it.
func (n *Namespace) describe() string {
	ctx := context.WithoutCancel(n.t.Context())
	var all strings.Builder
	for _, args := range [][]string{
		{"get", "warmpools,podclaims", "--output=wide"},
		{"get", "pods", "--output=custom-columns=NAME:.metadata.name,OWNER:.metadata.ownerReferences[*].name,READY:.status.conditions[?(@.type=='Ready')].status,DELETED:.metadata.deletionTimestamp"},
	} {
		output, err := n.env.Kubectl(ctx, append([]string{"--namespace=" + n.Name}, args...)...)
		if err != nil {
			output = err.Error()
		}
		fmt.Fprintf(&all, "kubectl %s\n%s\n", strings.Join(args, " "), output)
	}
	return all.String()
}
