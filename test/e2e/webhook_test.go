package e2e

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	review "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/test/environment"
)

// beginWebhook has a webhook asked about each new Pod of the namespace, which denies it.
func beginWebhook(t *testing.T, e *environment.Environment, ns *environment.Namespace) {
	registerWebhook(t, e, ns, startWebhook(t))
}

// beginDeadWebhook is beginWebhook with one that doesn't answer.
func beginDeadWebhook(t *testing.T, e *environment.Environment, ns *environment.Namespace) {
	webhook := startWebhook(t)
	webhook.Close()
	registerWebhook(t, e, ns, webhook)
}

func startWebhook(t *testing.T) *httptest.Server {
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked review.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Request == nil {
			http.Error(w, "this is no AdmissionReview", http.StatusBadRequest)
			return
		}
		asked.Response = &review.AdmissionResponse{UID: asked.Request.UID, Result: &metav1.Status{Message: "set the label team in the template"}}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(asked) // who asks sees what is missing
	}))
	t.Cleanup(webhook.Close)
	return webhook
}

func registerWebhook(t *testing.T, e *environment.Environment, ns *environment.Namespace, webhook *httptest.Server) {
	t.Helper()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	configuration := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns.Name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "team.example.com",
			ClientConfig:            admissionv1.WebhookClientConfig{URL: ptr.To(webhook.URL), CABundle: certificate},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
			FailurePolicy:           ptr.To(admissionv1.Fail),
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns.Name}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
	if _, err := e.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ns.Eventually("the webhook to be in force", func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: environment.Pool("x", 0).Spec.Template.Spec}
		_, err := e.Kube.CoreV1().Pods(ns.Name).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("a Pod is taken")
		}
		return nil
	})
}

func endWebhook(ns *environment.Namespace) {
	ns.Kubectl("delete", "validatingwebhookconfiguration", ns.Name)
}
